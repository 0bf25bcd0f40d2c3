"""From the application's keys and values to bytes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

from kprod.errors import InvalidRecordError, SerializationError
from kprod.types import BytesLike, Header, ProducerRecord

_Serialize: TypeAlias = Callable[[str, Sequence[Header], Any], Any]


class Serializers:
    """The serializers of one producer, or none: then keys and values must be bytes already.

    A serializer is a name, a callable ``f(object)`` or an object with
    ``serialize(topic, headers, object)`` (kafka-python 3). It is called for None too, as in Kafka's
    Java client, and returns bytes, bytearray, memoryview or None. Thread-safe if the serializers
    are.
    """

    def __init__(self, key: Any = None, value: Any = None) -> None:
        self._key = _bound(key)
        self._value = _bound(value)

    def apply(self, record: ProducerRecord) -> tuple[BytesLike | None, BytesLike | None]:
        """Key and value as bytes, None for null. The buffers are the caller's own, not copies.

        Raises SerializationError naming the topic and the field, InvalidRecordError for a
        memoryview that was released.
        """
        key, value = record.key, record.value
        if self._key is not None:
            key = _serialized("key", self._key, record, key)
        elif key is not None and type(key) is not bytes:
            key = _buffer("key", record.topic, key, _advice("key", key))
        if self._value is not None:
            value = _serialized("value", self._value, record, value)
        elif value is not None and type(value) is not bytes:
            value = _buffer("value", record.topic, value, _advice("value", value))
        return key, value


def _bound(serializer: Any) -> _Serialize | None:
    if serializer is None:
        return None
    if isinstance(serializer, str):
        from kprod.intake.named_serializers import NAMED_SERIALIZERS  # it brings json

        serializer = NAMED_SERIALIZERS[serializer]
    serialize = getattr(serializer, "serialize", None)
    if callable(serialize):
        return serialize  # type: ignore[no-any-return]
    return lambda _topic, _headers, data: serializer(data)


def _serialized(
    field: str, serialize: _Serialize, record: ProducerRecord, data: Any
) -> BytesLike | None:
    try:
        result = serialize(record.topic, record.headers, data)
    except Exception as error:
        raise SerializationError(
            f"{field} for topic {record.topic!r}: {field}_serializer failed on"
            f" {type(data).__name__}: {type(error).__name__}: {error}"
        ) from error
    if result is None or type(result) is bytes:
        return result
    return _buffer(field, record.topic, result, f"that is what {field}_serializer returned")


def _buffer(field: str, topic: str, data: Any, advice: str) -> BytesLike:
    """The data if it can be sent as it is. Errors tell its type only: the rest may be private."""
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
