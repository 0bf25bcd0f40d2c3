"""kafka-python's serializers, and calls of serializers for any version of kafka-python."""

from __future__ import annotations

import inspect
import json
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any, TypeAlias

from kprod.kafka.errors import also_theirs

Serialize: TypeAlias = Callable[[str, list[tuple[str, bytes]], Any], Any]


class Serializer(ABC):
    """Converts keys or values to bytes, like ``kafka.serializer.Serializer``."""

    @abstractmethod
    def serialize(self, topic: str, headers: list[tuple[str, bytes]], data: Any) -> Any:
        """The bytes of ``data``, or None."""

    def close(self) -> None:  # noqa: B027
        """Called once, when the producer is closed."""


class Deserializer(ABC):
    """Converts bytes to the application's objects, like ``kafka.serializer.Deserializer``."""

    @abstractmethod
    def deserialize(self, topic: str, headers: list[tuple[str, bytes]], data: bytes) -> Any:
        """The object that ``data`` encodes."""

    def close(self) -> None:  # noqa: B027
        """Called once, when the consumer is closed."""


for kind in (Serializer, Deserializer):
    also_theirs(kind, "serializer")


class DefaultSerializer(Serializer, Deserializer):
    """Encodes text in ``encoding``. Bytes and None stay unchanged."""

    def __init__(self, encoding: str = "utf-8") -> None:
        self.encoding = encoding

    def serialize(self, topic: str, headers: list[tuple[str, bytes]], data: Any) -> Any:
        """The bytes. Raises AttributeError for a value that is neither text nor bytes."""
        if data is None or isinstance(data, bytes | bytearray | memoryview):
            return data
        return data.encode(self.encoding)

    def deserialize(self, topic: str, headers: list[tuple[str, bytes]], data: bytes | None) -> Any:
        """The text, or None for None."""
        return None if data is None else data.decode(self.encoding)


class JsonSerializer(DefaultSerializer):
    """Encodes objects with ``json.dumps``. None stays None."""

    def serialize(self, topic: str, headers: list[tuple[str, bytes]], data: Any) -> Any:
        """The bytes. Raises TypeError and ValueError as ``json.dumps``."""
        return None if data is None else super().serialize(topic, headers, json.dumps(data))

    def deserialize(self, topic: str, headers: list[tuple[str, bytes]], data: bytes | None) -> Any:
        """The result of ``json.loads``."""
        return None if data is None else json.loads(super().deserialize(topic, headers, data))


class SerializeWrapper(Serializer):
    """Makes a serializer of a function. None stands for a function that changes nothing."""

    def __init__(self, fn: Callable[[Any], Any] | None) -> None:
        self.fn = fn

    def serialize(self, topic: str, headers: list[tuple[str, bytes]], data: Any) -> Any:
        """The result of the function."""
        return data if self.fn is None else self.fn(data)


def bound(serializer: Any) -> Serialize | None:
    """A function that calls a serializer, which is an object of kafka-python or a function.

    An object has a method ``serialize``, with three arguments in version 3 of kafka-python, and two
    in version 2. Raises TypeError for anything else.
    """
    if serializer is None:
        return None
    serialize = getattr(serializer, "serialize", None)
    if callable(serialize) and not isinstance(serializer, type):
        if accepts(serialize, 3):
            return serialize  # type: ignore[no-any-return]
        return lambda topic, _headers, data: serialize(topic, data)
    if not callable(serializer):
        raise TypeError(f"a serializer is a callable or has serialize(), not {serializer!r}")
    return lambda _topic, _headers, data: serializer(data)


def accepts(function: Callable[..., Any], count: int) -> bool:
    """Whether ``function`` can be called with ``count`` positional arguments."""
    try:
        inspect.signature(function).bind(*[None] * count)
    except TypeError:
        return False
    except ValueError:  # compiled, without a signature
        return True
    return True
