"""Serializers: convert the application's keys and values to bytes."""

from __future__ import annotations

import operator
import struct
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import lru_cache
from typing import Any, TypeAlias

from kprod.errors import InvalidRecordError, KprodError, SerializationError
from kprod.intake.arguments import freeze_headers
from kprod.types import BytesLike, Header, ProducerRecord

_DOUBLE = struct.Struct(">d")


class WrongType(TypeError):
    """Raised by kprod's serializers for an object of a type that they do not support."""


def str_serializer(text: str | None) -> bytes | None:
    """Text as UTF-8; None stays null. Raises TypeError for other types."""
    if text is None:
        return None
    if isinstance(text, str):
        return text.encode()
    raise WrongType(f"expects str, got {type(text).__name__}")


def json_serializer(value: Any) -> bytes | None:
    """JSON without spaces, in UTF-8; None stays null, which deletes a key of a compacted topic.

    Raises ValueError for NaN and infinities, which JSON does not have, and TypeError like
    json.dumps.
    """
    if value is None:
        return None
    return _json_encoder()(value).encode()


@lru_cache(maxsize=1)
def _json_encoder() -> Callable[[Any], str]:
    import json  # 2 ms that most applications do without

    encoder = json.JSONEncoder(separators=(",", ":"), ensure_ascii=False, allow_nan=False)
    return encoder.encode


def int_serializer(number: int | None) -> bytes | None:
    """8 bytes, big-endian, signed (Kafka's ``LongSerializer``); None stays null.

    Raises TypeError for other types, and OverflowError for more than 64 bits.
    """
    return None if number is None else _integer(number).to_bytes(8, "big", signed=True)


def int32_serializer(number: int | None) -> bytes | None:
    """4 bytes, big-endian, signed (Kafka's ``IntegerSerializer``); None stays null.

    Raises TypeError for other types, and OverflowError for more than 32 bits.
    """
    return None if number is None else _integer(number).to_bytes(4, "big", signed=True)


def float_serializer(number: float | None) -> bytes | None:
    """8 bytes, IEEE 754 double, big-endian (Kafka's ``DoubleSerializer``); None stays null.

    Raises TypeError for other types, and OverflowError for an integer beyond the largest double.
    """
    if number is None:
        return None
    if not isinstance(number, bool | str | bytes | bytearray):
        with suppress(TypeError):
            return _DOUBLE.pack(float(number))
    raise WrongType(f"expects float, got {type(number).__name__}")


def _integer(number: int) -> int:
    if type(number) is int:
        return number
    if isinstance(number, bool):
        raise WrongType("expects int, got bool")
    try:
        return operator.index(number)
    except TypeError:
        raise WrongType(f"expects int, got {type(number).__name__}") from None


NAMED_SERIALIZERS: dict[str, Callable[[Any], bytes | None]] = {
    "str": str_serializer,
    "json": json_serializer,
    "int": int_serializer,
    "int32": int32_serializer,
    "float": float_serializer,
}


_Serialize: TypeAlias = Callable[[str, list[Header], Any], Any]


class WouldWait(Exception):
    """A serializer in an event loop would have to wait, for example for a schema registry.

    Call ``wait()`` in another thread, and then send the record again.
    """

    def __init__(self, wait: Callable[[], object]) -> None:
        super().__init__("the serializer has to wait")
        self.wait = wait


def without_waiting(serializer: Any) -> Any:
    """The serializer for an event loop: if possible, it raises ``WouldWait`` instead of waiting."""
    turned = getattr(serializer, "without_waiting", None)
    return turned() if callable(turned) else serializer


class Serializers:
    """The serializers of one producer. Without any, keys and values must already be bytes.

    A serializer is a name, a callable ``f(object)`` or an object with ``serialize(topic, headers,
    object)`` (kafka-python 3). It returns bytes, bytearray, memoryview or None. As in Kafka's Java
    client, it is also called for None. It may change ``headers``, which is a list. Thread-safe if
    the serializers are.
    """

    def __init__(self, key: Any = None, value: Any = None) -> None:
        self._key = bound(key)
        self._value = bound(value)
        self._see_headers = any(map(_sees_headers, (key, value)))

    def __bool__(self) -> bool:
        return self._key is not None or self._value is not None

    def apply(
        self, record: ProducerRecord
    ) -> tuple[BytesLike | None, BytesLike | None, Sequence[Header]]:
        """Key and value as bytes (None for null), and the headers after the serializers.

        The buffers are the caller's own, not copies. Raises SerializationError with the topic and
        the field, InvalidRecordError for a released memoryview, the errors of ``freeze_headers``
        for headers that a serializer has set, and WouldWait.
        """
        return self.apply_to(record.topic, record.key, record.value, record.headers)

    def apply_to(
        self, topic: str, key: Any, value: Any, headers: Sequence[Header]
    ) -> tuple[BytesLike | None, BytesLike | None, Sequence[Header]]:
        """``apply`` for a record with these fields; the compiled ``send`` calls it."""
        seen = list(headers) if self._see_headers else None
        if self._key is not None:
            key = _serialized("key", self._key, topic, seen, key)
        elif key is not None and type(key) is not bytes:
            key = _buffer("key", topic, key, _advice("key", key))
        if self._value is not None:
            value = _serialized("value", self._value, topic, seen, value)
        elif value is not None and type(value) is not bytes:
            value = _buffer("value", topic, value, _advice("value", value))
        if seen is None or not (seen or headers):
            return key, value, headers
        return key, value, _frozen(seen, headers)


def _frozen(seen: list[Header], headers: Sequence[Header]) -> Sequence[Header]:
    """The headers after the serializers; the record's own if no serializer has changed them."""
    frozen = freeze_headers(seen)
    return headers if frozen == headers else frozen


def bound(serializer: Any) -> _Serialize | None:
    if serializer is None:
        return None
    if isinstance(serializer, str):
        serializer = NAMED_SERIALIZERS[serializer]
    if _sees_headers(serializer):
        return serializer.serialize  # type: ignore[no-any-return]
    return lambda _topic, _headers, data: serializer(data)


def _sees_headers(serializer: Any) -> bool:
    return callable(getattr(serializer, "serialize", None))


def _serialized(
    field: str,
    serialize: _Serialize,
    topic: str,
    headers: list[Header] | None,
    data: Any,
) -> BytesLike | None:
    try:
        result = serialize(topic, [] if headers is None else headers, data)
    except (WouldWait, KprodError):  # their texts name the cause
        raise
    except WrongType as error:
        raise SerializationError(
            f"{field} for topic {topic!r}: {field}_serializer {error}"
        ) from error
    except Exception as error:
        raise SerializationError(
            f"{field} for topic {topic!r}: {field}_serializer failed on"
            f" {type(data).__name__}: {type(error).__name__}: {error}"
        ) from error
    if result is None or type(result) is bytes:
        return result
    return _buffer(field, topic, result, f"that is what {field}_serializer returned")


def _buffer(field: str, topic: str, data: Any, advice: str) -> BytesLike:
    """Return the data if it can be sent as it is.

    Errors contain only its type, because the data may be private.
    """
    if isinstance(data, memoryview):
        return _byte_view(field, topic, data)
    if isinstance(data, bytes | bytearray):
        return data
    raise SerializationError(
        f"{field} for topic {topic!r}: expected bytes, bytearray, memoryview or None, got"
        f" {type(data).__name__}; {advice}"
    )


def _byte_view(field: str, topic: str, view: memoryview) -> memoryview:
    try:
        fits = view.ndim == 1 and view.itemsize == 1 and view.c_contiguous
    except ValueError as error:
        raise InvalidRecordError(f"{field} for topic {topic!r}: {error}") from None
    if not fits:
        raise SerializationError(
            f"{field} for topic {topic!r}: expected a contiguous memoryview of single bytes, got"
            f" {view.ndim} dimensions of format {view.format!r}, contiguous: {view.c_contiguous};"
            f" pass view.cast('B') or view.tobytes()"
        )
    return view


def _advice(field: str, data: Any) -> str:
    if isinstance(data, str):
        return f'pass {field}_serializer="str" to send text'
    if isinstance(data, dict | list | tuple | int | float):
        return f'pass {field}_serializer=..., for instance "json"'
    return f"pass {field}_serializer=... to turn it into bytes"


NO_SERIALIZERS = Serializers()
"""For keys and values that are bytes."""
