"""The arguments of ``send`` and the size of the record, checked before anything is queued.

Every function takes a value as the application passed it, and returns it in the form that the rest
of the code expects. They run for every record of the Python path, so they try the usual exact types
first. Wrong types raise RecordTypeError (a TypeError), wrong values a ValueError; the message has
the argument's name, its value, and what is expected.
"""

from __future__ import annotations

import operator
from collections.abc import Collection, ItemsView, Mapping
from contextlib import suppress
from functools import lru_cache
from typing import Any

from kprod.config import ProducerConfig
from kprod.config.kinds import safe_repr
from kprod.config.topic_options import MAX_TOPIC_LENGTH, is_topic_name
from kprod.errors import (
    InvalidRecordError,
    InvalidTopicError,
    PartitionError,
    RecordTooLargeError,
    RecordTypeError,
)
from kprod.types import BytesLike, Header, ProducerRecord
from kprod_ext.batch import batch_size_upper_bound
from kprod_ext.record import is_frozen, is_partition, is_timestamp, largest_payload


def check_topic(topic: Any) -> str:
    """The topic as a plain ``str``.

    Raises InvalidTopicError for a name that Kafka does not allow
    (``org.apache.kafka.common.internals.Topic``), and RecordTypeError if it is not a string.
    """
    # The text of a str subclass is taken from the object itself: its __str__ may say anything.
    name = topic if type(topic) is str else _plain_text(topic)
    _check_name(name)
    return name


def _plain_text(topic: Any) -> str:
    if not isinstance(topic, str):
        raise RecordTypeError(f"topic: expected a str, got {safe_repr(topic)}")
    return str.__str__(topic)


@lru_cache(maxsize=1024)
def _check_name(topic: str) -> None:
    """Raise for an invalid name; a cache with exact ``str`` keys remembers the valid ones."""
    if not is_topic_name(topic):
        raise InvalidTopicError(
            f"topic: expected 1 to {MAX_TOPIC_LENGTH} of the characters a-z A-Z 0-9 . _ - (and not"
            f' "." or ".."), got {safe_repr(topic)} of {len(topic)} characters'
        )


def check_partition(partition: Any) -> int | None:
    """The partition as a plain ``int``, or None. Does not check whether the topic has it.

    Raises PartitionError for an integer that is not a valid partition number, and RecordTypeError
    for other types. True and False do not count as integers.
    """
    if partition is None:
        return None
    number = partition if type(partition) is int else _integer("partition", partition)
    if is_partition(number):
        return number
    raise PartitionError(
        "partition: expected a number from 0 to 2147483647, or None to let the partitioner"
        f" choose; got {safe_repr(partition)}"
    )


def check_timestamp(timestamp_ms: Any) -> int | None:
    """The timestamp in milliseconds since the epoch as a plain ``int``, or None for "now".

    Raises InvalidRecordError for an integer that is negative or too large, and RecordTypeError for
    other types.
    """
    if timestamp_ms is None:
        return None
    number = timestamp_ms if type(timestamp_ms) is int else _integer("timestamp_ms", timestamp_ms)
    if is_timestamp(number):
        return number
    raise InvalidRecordError(
        "timestamp_ms: expected milliseconds since 1970 from 0 to 2**63 - 1, or None for the time"
        f" of send; got {safe_repr(timestamp_ms)}"
    )


def refuse_positions(misplaced: tuple[object, ...]) -> None:
    """Raise RecordTypeError if options were passed by position."""
    if misplaced:
        meant = f"bootstrap_servers={safe_repr(misplaced[0])}"
        raise RecordTypeError(
            f"options are passed by name, as in KafkaProducer({meant})"
            if not isinstance(misplaced[0], dict)
            else "options are passed by name: KafkaProducer(**options) takes a dict of them"
        )


def check_seconds(call: str, timeout: Any, longest: float) -> None:
    """Check a timeout: None, or seconds from 0 to ``longest``.

    Raises InvalidRecordError for other numbers, and RecordTypeError for other types.
    """
    if timeout is None:
        return
    if isinstance(timeout, bool) or not isinstance(timeout, int | float):
        raise RecordTypeError(f"{call}: timeout must be seconds or None, got {timeout!r}")
    if not 0 <= timeout <= longest:
        raise InvalidRecordError(f"{call}: timeout must be seconds from 0 on, got {timeout!r}")


def _integer(argument: str, value: Any) -> int:
    """An integer of any type, such as numpy's, as an ``int``.

    Floats are rejected, because they may already have lost digits.
    """
    # numpy 1 takes its own truth values for integers, and warns that it will not for long.
    if not isinstance(value, bool) and type(value).__name__ != "bool_":
        with suppress(TypeError):
            return operator.index(value)
    hint = _timestamp_hint(value) if argument == "timestamp_ms" else ""
    raise RecordTypeError(f"{argument}: expected an int or None, got {safe_repr(value)}{hint}")


def _timestamp_hint(value: Any) -> str:
    from datetime import datetime  # 2 ms, for mistakes only

    if isinstance(value, datetime):
        return "; pass int(moment.timestamp() * 1000)"
    if isinstance(value, float):
        return "; pass int(...) of milliseconds since 1970"
    return ""


def freeze_headers(headers: Any) -> tuple[Header, ...]:
    """The headers as a tuple of ``(str, bytes | None)``, independent of the caller's objects.

    ``headers`` is None, a dict, or a list or tuple of pairs. Their order and repeated names are
    kept. A pair is a tuple, a list, or a dict with ``key`` and ``value`` as in Arrow and Spark.
    Buffers are copied to bytes. Raises RecordTypeError or InvalidRecordError with the header's
    index.
    """
    if headers is None:
        return ()
    # One copy first: another thread may change the list while the pairs are looked at.
    pairs = tuple(_pairs(headers))
    if is_frozen(pairs):
        return pairs
    return tuple(_frozen(index, pair) for index, pair in enumerate(pairs))


def _pairs(headers: Any) -> Collection[Any]:
    if isinstance(headers, list | tuple | ItemsView):
        return headers
    if isinstance(headers, Mapping):
        return headers.items()
    raise RecordTypeError(
        f"headers: expected a dict, or a list or tuple of (str, bytes or None) pairs, or None;"
        f" got {safe_repr(headers)}"
    )


def _frozen(index: int, pair: Any) -> Header:
    if isinstance(pair, Mapping) and pair.keys() == {"key", "value"}:
        pair = pair["key"], pair["value"]
    if not isinstance(pair, tuple | list) or len(pair) != 2:
        raise RecordTypeError(
            f"headers[{index}]: expected a pair (str, bytes or None), got {safe_repr(pair)}"
        )
    name, value = pair
    return _frozen_name(index, name), _frozen_value(index, value)


def _frozen_name(index: int, name: Any) -> str:
    if not isinstance(name, str):
        raise RecordTypeError(
            f"headers[{index}]: expected a str as the name, got {safe_repr(name)}"
        )
    text = str.__str__(name)
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise InvalidRecordError(
            f"headers[{index}]: the name {safe_repr(text)} cannot be encoded as UTF-8:"
            f" {error.reason}"
        ) from None
    return text


def _frozen_value(index: int, value: Any) -> bytes | None:
    if value is None:
        return None
    if not isinstance(value, bytes | bytearray | memoryview):
        hint = "; encode text with .encode()" if isinstance(value, str) else ""
        raise RecordTypeError(
            f"headers[{index}]: expected bytes or None as the value,"
            f" got {type(value).__name__}{hint}"
        )
    try:
        # Not bytes(value): a subclass of bytes may answer that with something else.
        return memoryview(value).tobytes()
    except ValueError as error:
        raise InvalidRecordError(f"headers[{index}]: the value cannot be read: {error}") from None


def checked_record(
    topic: Any, value: Any, key: Any, headers: Any, partition: Any, timestamp_ms: Any
) -> ProducerRecord:
    """A record of these arguments, all of them checked and converted except key and value.

    Raises the errors of the other functions in this module.
    """
    return ProducerRecord(
        check_topic(topic),
        value,
        key,
        freeze_headers(headers),
        check_partition(partition),
        check_timestamp(timestamp_ms),
    )


def check_record(record: ProducerRecord) -> ProducerRecord:
    """``checked_record`` for the fields of a record that the application has made."""
    return checked_record(
        record.topic,
        record.value,
        record.key,
        record.headers,
        record.partition,
        record.timestamp_ms,
    )


class SizeLimits:
    """The options that limit the size of a batch with a single record. Immutable.

    ``largest`` is the maximum size of that batch in bytes. If key, value and headers have at most
    ``largest_payload`` bytes, the batch always fits, so its size need not be computed.
    """

    def __init__(self, config: ProducerConfig) -> None:
        self._limits = {
            "max_request_size": config.max_request_size,
            "buffer_memory": config.buffer_memory,
        }
        self.largest = min(self._limits.values())
        self.largest_payload = largest_payload(self.largest)

    def check(self, record: ProducerRecord, key: BytesLike | None, value: BytesLike | None) -> None:
        """Raise RecordTooLargeError for a record whose encoded size exceeds a limit."""
        try:
            size = batch_size_upper_bound(key, value, record.headers)
        except ValueError as error:
            raise RecordTooLargeError(f"a record for topic {record.topic!r}: {error}") from None
        if size > self.largest:
            raise self.error(record.topic, size)

    def error(self, topic: str | None, size: int) -> RecordTooLargeError:
        """The error for a record of ``size`` bytes; -1 means more than the format allows.

        ``topic`` is None if it is not known yet.
        """
        what = "a record" if topic is None else f"a record for topic {topic!r}"
        if size < 0:
            return RecordTooLargeError(
                f"{what}: the record is larger than the format allows (2 GiB)"
            )
        name, limit = next(item for item in self._limits.items() if size > item[1])
        return RecordTooLargeError(f"{what} takes up to {size} bytes, more than {name} ({limit})")
