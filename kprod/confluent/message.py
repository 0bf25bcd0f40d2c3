# cython: binding=False, embedsignature=True, embedsignature.format=clinic
"""Message: a record as delivery reports show it"""

from __future__ import annotations

from typing import Any

from kprod.buffer.future import FutureRecordMetadata
from kprod.confluent.errors import from_native

TIMESTAMP_NOT_AVAILABLE, TIMESTAMP_CREATE_TIME, TIMESTAMP_LOG_APPEND_TIME = 0, 1, 2
OFFSET_INVALID = -1001
_INT16 = 2**15


class Message:
    """A record and what became of it, with confluent_kafka.Message's arguments and calls."""

    __slots__ = (
        "_began",
        "_delivery_count",
        "_error",
        "_future",
        "_headers",
        "_key",
        "_latency",
        "_leader_epoch",
        "_offset",
        "_on_delivery",
        "_partition",
        "_timestamp",
        "_timestamp_type",
        "_topic",
        "_value",
    )

    def __init__(  # noqa: PLR0913, PLR0917
        self,
        topic: Any = None,
        partition: int = -1,
        offset: int = OFFSET_INVALID,
        key: Any = None,
        value: Any = None,
        headers: Any = None,
        error: Any = None,
        timestamp: tuple[int, int] | None = None,
        latency: float = -1.0,
        leader_epoch: int = -1,
        delivery_count: int = -1,
    ) -> None:
        if not -_INT16 <= delivery_count < _INT16:
            raise OverflowError("delivery_count does not fit into 16 bits")
        self._future: Any = None
        self._on_delivery: Any = None
        self._began = 0.0
        self._topic = topic
        self._partition = -1 if partition < 0 else partition
        self._offset = OFFSET_INVALID if offset < 0 else offset
        self._key = key
        self._value = value
        self._headers = headers
        self._error = error
        self._timestamp_type, self._timestamp = (0, 0) if timestamp is None else timestamp
        self._latency = -1.0 if latency < 0 else latency
        self._leader_epoch = -1 if leader_epoch < 0 else leader_epoch
        self._delivery_count = delivery_count if delivery_count > 0 else -1

    def topic(self) -> Any:
        """The topic's name."""
        return self._topic

    def partition(self) -> int | None:
        """The partition's number, None where there is none yet."""
        return None if self._partition < 0 else self._partition

    def offset(self) -> int | None:
        """The offset, None where none is known."""
        return None if self._offset < 0 else self._offset

    def key(self) -> Any:
        """The key."""
        return self._key

    def value(self) -> Any:
        """The value."""
        return self._value

    def headers(self) -> Any:
        """The headers, None for none."""
        return self._headers

    def error(self) -> Any:
        """The KafkaError that ended the record, or None."""
        return self._error

    def timestamp(self) -> tuple[int, int]:
        """What kind of timestamp it is, and milliseconds since the epoch."""
        return self._timestamp_type, self._timestamp

    def latency(self) -> float | None:
        """Seconds from ``produce`` to the outcome."""
        return None if self._latency < 0 else self._latency

    def leader_epoch(self) -> int | None:
        """The leader epoch, which producers are not told."""
        return None if self._leader_epoch < 0 else self._leader_epoch

    def delivery_count(self) -> int | None:
        """For share consumers."""
        return None if self._delivery_count < 1 else self._delivery_count

    def set_topic(self, value: Any) -> None:
        """Replace the topic."""
        self._topic = value

    def set_value(self, value: Any) -> None:
        """Replace the value."""
        self._value = value

    def set_key(self, value: Any) -> None:
        """Replace the key."""
        self._key = value

    def set_headers(self, value: Any) -> None:
        """Replace the headers."""
        self._headers = value

    def set_error(self, value: Any) -> None:
        """Replace the error."""
        self._error = value

    def __len__(self) -> int:
        return 0 if self._value is None else len(self._value)

    def __bool__(self) -> bool:
        return True

    def _all(self) -> tuple[Any, ...]:
        return (
            self._topic,
            self._partition,
            self._offset,
            self._key,
            self._value,
            self._headers,
            self._error,
            self.timestamp(),
            self._latency,
            self._leader_epoch,
            self._delivery_count,
        )

    def __eq__(self, other: object) -> bool:
        return self._all() == other._all() if isinstance(other, Message) else NotImplemented

    __hash__ = None  # type: ignore[assignment]

    def __reduce__(self) -> tuple[Any, ...]:
        return Message, self._all()


def queued(
    future: FutureRecordMetadata,
    on_delivery: Any,
    key: Any,
    value: Any,
    headers: Any,
    began: float,
) -> Message:
    """The message of a record that was queued at ``began``, to be filled in by ``delivered``."""
    message = Message.__new__(Message)
    message._future = future
    message._on_delivery = on_delivery
    message._key = key
    message._value = value
    message._headers = headers
    message._began = began
    return message


def delivered(message: Message, ended_at: float) -> Any:
    """Fill in what became of the record; return what is to be called with it, None for nothing."""
    on_delivery = message._on_delivery
    if on_delivery is None:
        return None
    future = message._future
    delivery, index = future.delivery, future.index
    if delivery.is_split:
        delivery, index = delivery.locate(index)
    message._future = message._on_delivery = None
    message._topic, message._partition = delivery.tp
    message._latency = ended_at - message._began
    message._leader_epoch = message._delivery_count = -1
    if delivery.error is None:
        base, stamp = delivery.base_offset, delivery.append_time
        message._error = None
        message._offset = base + index if base >= 0 else OFFSET_INVALID
        message._timestamp_type = TIMESTAMP_CREATE_TIME if stamp < 0 else TIMESTAMP_LOG_APPEND_TIME
        message._timestamp = future.timestamp if stamp < 0 else stamp
    else:
        message._error = from_native(delivery.error)
        message._offset = OFFSET_INVALID
        message._timestamp_type, message._timestamp = TIMESTAMP_NOT_AVAILABLE, 0
    return on_delivery
