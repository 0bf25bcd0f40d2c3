"""From the items of a Spark partition to the arguments of ``KafkaProducer.send``."""

from __future__ import annotations

import datetime
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from kprod.errors import RecordTypeError
from kprod.types import Header

EPOCH = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)
MILLISECOND = datetime.timedelta(milliseconds=1)


def read_headers(headers: Any) -> list[Header]:
    """Headers from a mapping, or a sequence of pairs or of structs with ``key`` and ``value``."""
    try:
        pairs = headers.items() if isinstance(headers, Mapping) else map(_pair, headers)
        return [(key, value.encode() if isinstance(value, str) else value) for key, value in pairs]
    except (TypeError, ValueError, KeyError) as error:
        raise RecordTypeError(
            "headers must be a map, or an array of (key, value) pairs or structs; "
            f"got {type(headers).__name__}"
        ) from error


def _pair(header: Any) -> Any:
    return (header["key"], header["value"]) if isinstance(header, Mapping) else header


def read_timestamp(timestamp: Any) -> int:
    """Milliseconds since the epoch. A datetime without a zone is local time, as in Spark's rows."""
    if isinstance(timestamp, datetime.datetime):
        return (timestamp.astimezone(datetime.UTC) - EPOCH) // MILLISECOND
    if isinstance(timestamp, int):
        return timestamp
    raise RecordTypeError(
        f"a timestamp must be a datetime or ms since the epoch, not {type(timestamp).__name__}"
    )


SendArguments: TypeAlias = tuple[str, Any, Any, list[Header] | None, int | None, int | None]
"""topic, value, key, headers, partition, timestamp in ms: the order of ``send``."""

OTHER_COLUMNS = frozenset({"topic", "partition", "timestamp", "headers"})


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordShapes:
    """Reads a Row, dict, tuple, bytes or str. Immutable; thread: any.

    The columns of a Row or dict are those of Spark's own Kafka sink: ``value`` (required), ``key``,
    ``topic``, ``partition``, ``headers``, and ``timestamp`` (a datetime, or ms since the epoch).
    ``value`` and ``key`` may have other names; a topic given here wins over the column. Tuples are
    (key, value[, headers[, timestamp[, partition]]]). Text becomes UTF-8 unless a serializer of
    the producer wants it as it is.
    """

    topic: str | None
    key: str = "key"
    value: str = "value"
    encode_key: bool = True
    encode_value: bool = True

    def read(self, item: Any) -> SendArguments:
        """The arguments that send ``item``. Raises RecordTypeError for a shape it does not know."""
        if isinstance(item, bytes | bytearray | memoryview | str):
            return self._arguments(None, item)
        if isinstance(item, Mapping):
            return self._read_columns(item)
        if isinstance(item, tuple):
            names = getattr(item, "__fields__", None)  # what makes a Row of a tuple
            if names:
                return self._read_columns(dict(zip(names, item, strict=True)))
            if 2 <= len(item) <= 5:
                return self._arguments(*item)
        raise RecordTypeError(
            "a partition must hold Rows, dicts, bytes, str or tuples of "
            f"(key, value[, headers[, timestamp[, partition]]]); got {_describe(item)}"
        )

    def reader(self) -> Callable[[Any], SendArguments]:
        """``read`` for the items of one partition; thread: one.

        Rows most often have the columns of the one before. Where these are value and key alone, a
        row is read by their places.
        """
        names: Any = None
        places: tuple[int, int] | None = None

        def read(item: Any) -> SendArguments:
            nonlocal names, places
            fields = getattr(item, "__fields__", None)
            if fields is None:
                return self.read(item)
            if fields != names:
                names, places = fields, self.places(fields)
            if places is None or not isinstance(item, tuple) or len(item) != len(fields):
                return self.read(item)
            key_at, value_at = places
            # Not row[...], which pyspark has defined in Python.
            return self._arguments(
                tuple.__getitem__(item, key_at) if key_at >= 0 else None,
                tuple.__getitem__(item, value_at),
            )

        return read

    def places(self, names: Sequence[str]) -> tuple[int, int] | None:
        """Where key (-1: nowhere) and value are; None when there is anything else, or no topic."""
        if self.topic is None or self.value not in names or len(set(names)) < len(names):
            return None
        if set(names) - {self.key, self.value}:
            return None
        return (names.index(self.key) if self.key in names else -1), names.index(self.value)

    def check_columns(self, names: Collection[str]) -> None:
        """Raises RecordTypeError when the value is missing or a column would be dropped unseen."""
        if self.value not in names:
            raise RecordTypeError(f"there is no column {self.value!r} among {sorted(names)}")
        unknown = set(names) - OTHER_COLUMNS - {self.key, self.value}
        if unknown:
            raise RecordTypeError(
                f"a Kafka record has no place for {sorted(unknown)}: select value, key, topic, "
                "partition, timestamp and headers only, or name other columns by key= and value="
            )

    def _read_columns(self, row: Mapping[str, Any]) -> SendArguments:
        self.check_columns(row.keys())
        return self._arguments(
            row.get(self.key),
            row[self.value],
            row.get("headers"),
            row.get("timestamp"),
            row.get("partition"),
            row.get("topic"),
        )

    def _arguments(
        self,
        key: Any,
        value: Any,
        headers: Any = None,
        timestamp: Any = None,
        partition: int | None = None,
        topic: str | None = None,
    ) -> SendArguments:
        if self.encode_key and isinstance(key, str):
            key = key.encode()
        if self.encode_value and isinstance(value, str):
            value = value.encode()
        return (
            required_topic(self.topic or topic),
            value,
            key,
            None if headers is None else read_headers(headers),
            partition,
            None if timestamp is None else read_timestamp(timestamp),
        )


def required_topic(topic: str | None) -> str:
    """The topic of a record, or RecordTypeError when it has none."""
    if topic is None:
        raise RecordTypeError("a record has no topic: give partition_writer one, or a topic column")
    return topic


def as_it_came(item: Any) -> SendArguments:
    """Arguments of a send for an item that is no record: its value if it has one, else its repr."""
    fields = getattr(item, "__fields__", None)
    row = dict(zip(fields, item, strict=True)) if fields else item
    value = row.get("value") if isinstance(row, Mapping) else item
    if isinstance(value, str):
        value = value.encode()
    if not isinstance(value, bytes | bytearray | memoryview):
        value = repr(item).encode()
    return "", bytes(value), None, None, None, None


def _describe(item: Any) -> str:
    return f"a tuple of {len(item)}" if isinstance(item, tuple) else type(item).__name__
