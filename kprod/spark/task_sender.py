"""Sends the rows of one task. They are record batches, or items of an RDD."""

from __future__ import annotations

import datetime
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import islice
from numbers import Real
from operator import attrgetter
from typing import Any, Final

import pyarrow as pa

from kprod.errors import ConfigError, KprodError, RecordTypeError
from kprod.schema.bounded_cache import BoundedCache
from kprod.schema.columns.encoded_columns import Convert
from kprod.schema.columns.payload_format import PayloadFormat
from kprod.schema.columns.record_columns import RecordColumns, record_columns
from kprod.schema.columns.record_plan import (
    RecordPlan,
    Rows,
    SendArguments,
    as_it_came,
    bytes_of,
    read_batch,
    size_of,
)
from kprod.spark.acknowledgements import is_about_the_record
from kprod.spark.executor_producer import MeasuringProducer

MOST_ROWS: Final = 1024
MOST_BYTES: Final = 1 << 20
SLOW_SECONDS: Final = 0.01
"""If a slice has more bytes, or took longer to arrive, the next one has half as many rows."""
READ_ROWS: Final = 8_192  # of a record batch that are Python objects at the same time
MOST_TYPES: Final = 256  # converters of items that are kept
_names = attrgetter("__fields__")


class ItemPayloads:
    """Encodes the keys or the values of items, each as an Arrow column of one cell.

    Items do not share a column, because they would then get a common type: 1 beside 1.5 would
    become 1.0. For one thread only.
    """

    def __init__(self, role: str, format: PayloadFormat) -> None:
        self.encodes = format.kind != "binary"
        self._role, self._format = role, format
        self._converters: BoundedCache[Any, Convert] = BoundedCache(MOST_TYPES)

    def encode(self, value: Any) -> Any:
        """The value as bytes, or the value itself if there is no format.

        Raises RecordTypeError if the format cannot represent the value.
        """
        if value is None or not self.encodes:
            return value
        try:
            column = pa.array([_as_cell(value)])
        except (pa.ArrowException, OverflowError, TypeError, ValueError) as error:
            kind = type(value).__name__
            raise RecordTypeError(
                f"{self._role}: no Arrow column holds this {kind}: {error}"
            ) from None
        convert = self._converters.get(column.type)
        if convert is None:
            convert = self._format.converter(self._role, column.type)
            self._converters.put(column.type, convert)
        encoded, faults = convert(column)
        if faults:
            raise faults[0]
        return bytes_of(encoded)[0]


def _as_cell(value: Any) -> Any:
    """``value`` for pyarrow: a Row is a struct, and a time without a zone is local time."""
    names = getattr(value, "__fields__", None)
    if names:
        value = dict(zip(names, value, strict=True))
        if len(value) < len(names):
            raise ValueError("a Row has two fields of one name")
    if isinstance(value, Mapping):
        return {name: _as_cell(cell) for name, cell in value.items()}
    if isinstance(value, list | tuple):
        return [_as_cell(cell) for cell in value]
    if isinstance(value, datetime.datetime) and value.tzinfo is None:
        return value.astimezone(datetime.UTC)
    return value


class TaskSender:
    """Sends the rows of one task. For one thread only.

    Invalid rows are passed to ``producer.rejected``. If that is None, the error of the first one is
    raised.
    """

    def __init__(
        self,
        plan: RecordPlan,
        producer: MeasuringProducer,
        limiter: RateLimiter | None = None,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        self._plan = plan
        self._value = ItemPayloads("value", plan.value)
        self._key = ItemPayloads("key", plan.key)
        self._producer = producer
        self._rejected = producer.rejected
        self._limiter = limiter
        self._now = now

    def send_batches(self, batches: Iterable[Any]) -> None:
        """Send record batches. Raises as ``TaskProducer``, and RecordTypeError."""
        for batch in batches:
            arranged = self._plan.arrange(batch)
            if arranged.num_rows:
                self._send_columns(arranged)

    def send_items(self, items: Iterable[Any]) -> None:
        """Send Rows, dicts, tuples, bytes and strings. Raises as ``send_batches``.

        Items are sent in slices, to do some work once per slice instead of once per row. Items of
        the same type that have only a key and a value are sent with one call. All others are sent
        one by one, and in short slices.
        """
        remaining, size = iter(items), 1
        while True:
            started = self._now()
            rows = list(islice(remaining, size))
            if not rows:
                return
            quick = self._now() - started <= SLOW_SECONDS
            small = self._send_slice(rows) <= MOST_BYTES
            size = min(size * 2, MOST_ROWS) if quick and small else max(1, size // 2)

    # Record batches -------------------------------------------------------------------------------

    def _send_columns(self, arranged: Any) -> None:
        records = record_columns(arranged, self._plan.topic, self._plan.value, self._plan.key)
        if records.faults:
            self._reject_faults(arranged, records)
        for topic, part in records.split(self._plan.topic):
            if self._plan.by_row:
                self._send_one_by_one(topic, part)
            else:
                self._send_rows(Rows(topic, part))

    def _reject_faults(self, arranged: Any, records: RecordColumns) -> None:
        """Reject the invalid rows, with their original data."""
        if self._rejected is None:
            row, error = min(records.faults.items())
            error.record = row
            error.args = (f"record {row}: {error}",)
            raise error
        for row, error in sorted(records.faults.items()):
            self._rejected.take(_as_it_came(arranged.slice(row, 1)), error)

    def _send_one_by_one(self, topic: str, part: Any) -> None:
        """Send rows one by one, for serializers and interceptors. Reject unreadable rows."""
        plan = replace(
            self._plan,
            topic=topic,
            encode_key=self._plan.encode_key or self._key.encodes,
            encode_value=self._plan.encode_value or self._value.encodes,
        )
        for start in range(0, part.num_rows, READ_ROWS):
            piece = part.slice(start, READ_ROWS)
            faults: dict[int, RecordTypeError] = {}
            rows = read_batch(piece, plan, None if self._rejected is None else faults)
            for number, row in enumerate(rows):
                if number not in faults:
                    self._send_one(row)
                elif self._rejected is not None:
                    came = _as_it_came(piece.slice(number, 1)) if row[1] is None else row
                    self._rejected.take((topic, *came[1:]), faults[number])

    # Items ----------------------------------------------------------------------------------------

    def _send_slice(self, items: list[Any]) -> float:
        """Send the items, and return their bytes; infinity if the items were sent one by one."""
        rows = self._as_rows(items)
        if rows is None:
            for item in items:
                self._send_item(item)
            return float("inf")
        self._send_rows(rows)
        return rows.nbytes

    def _send_item(self, item: Any) -> None:
        arguments = None
        try:
            arguments = self._plan.read(item)
            topic, value, key, *others = arguments
            arguments = topic, self._value.encode(value), self._key.encode(key), *others
        except RecordTypeError as error:
            if self._rejected is None:
                raise
            self._rejected.take(as_it_came(item) if arguments is None else arguments, error)
        else:
            self._send_one(arguments)

    def _as_rows(self, items: list[Any]) -> Rows | None:
        """The items as rows of values and keys.

        None if an item has other fields, if the items' kinds differ, or if each item has to be
        converted by itself.
        """
        topic = self._plan.topic
        if topic is None or self._plan.by_row or self._value.encodes or self._key.encodes:
            return None
        kind, *others = set(map(type, items))
        if others:
            return None
        if kind is bytes or kind is str:
            columns: dict[str, Any] = {"value": items}
        else:
            places = self._places(items) if issubclass(kind, tuple) else None
            if places is None or len(set(map(len, items))) > 1:
                return None
            cells = list(zip(*items, strict=True))
            columns = {role: cells[place] for role, place in places.items()}
        try:
            payloads = {role: pa.array(cells, pa.large_binary()) for role, cells in columns.items()}
        except (pa.ArrowException, TypeError, ValueError):  # neither bytes nor text
            return None
        return Rows(topic, pa.RecordBatch.from_pydict(payloads))

    def _places(self, rows: list[Any]) -> dict[str, int] | None:
        """The positions of value and key in these tuples; None if not known, or with others."""
        names = getattr(rows[0], "__fields__", None)  # what makes a Row of a tuple
        if names is None:
            return {"key": 0, "value": 1} if len(rows[0]) == 2 else None
        if len(names) != len(rows[0]) or list(map(_names, rows)).count(names) < len(rows):
            return None
        try:
            found = self._plan.find(names)
        except RecordTypeError:
            return None
        if "value" not in found or found.keys() - {"key", "value"}:
            return None
        return {role: names.index(name) for role, name in found.items()}

    # Either ---------------------------------------------------------------------------------------

    def _send_one(self, arguments: SendArguments) -> None:
        _, value, key, *_ = arguments
        if self._limiter is not None:
            self._limiter.wait(1, size_of(value, key))
        try:
            self._producer.send(*arguments)
        except KprodError as error:
            if self._rejected is None or not is_about_the_record(error):
                raise
            self._rejected.take(arguments, error)

    def _send_rows(self, rows: Rows) -> None:
        for piece in (rows,) if self._limiter is None else self._limiter.pieces(rows):
            self._producer.send_rows(piece)


def _as_it_came(row: Any) -> SendArguments:
    """The arguments for a row that could not be converted.

    Keys and values that are neither bytes nor text become JSON.
    """
    raw = PayloadFormat("json")
    kept = row.select([role for role in row.schema.names if role not in ("topic", "partition")])
    return Rows("", record_columns(kept, "", raw, raw).batch).arguments(0)


SLICE_SECONDS = 0.2  # how much of the time the rows that are sent at once may take


@dataclass(frozen=True, slots=True, kw_only=True)
class RateLimit:
    """Records and bytes (of keys and values) per second; None means no limit. Immutable."""

    records: float | None = None
    bytes: float | None = None

    def __post_init__(self) -> None:
        limits: dict[str, Any] = {"records": self.records, "bytes": self.bytes}
        for name, limit in limits.items():
            number = isinstance(limit, Real) and not isinstance(limit, bool)
            if limit is not None and not (number and limit > 0):
                raise ConfigError(f"max_{name}_per_second: must be more than 0; got {limit!r}")

    def shared_by(self, tasks: int) -> RateLimit:
        """The share of one task if ``tasks`` run at the same time."""
        return RateLimit(
            records=None if self.records is None else self.records / tasks,
            bytes=None if self.bytes is None else self.bytes / tasks,
        )


class RateLimiter:
    """Delays records so that a rate limit is kept. For one thread only.

    It waits before it sends records instead of afterwards. So even many small tasks, one after the
    other, keep to the limit.
    """

    def __init__(
        self,
        limit: RateLimit,
        now: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._limit = limit
        self._now = now
        self._sleep = sleep
        self._free_at = now()

    def wait(self, records: int, nbytes: int) -> None:
        """Wait until these records may be sent."""
        now = self._now()
        self._free_at = max(self._free_at, now) + self._seconds(records, nbytes)
        self._sleep(self._free_at - now)

    def pieces(self, rows: Rows) -> Iterator[Rows]:
        """Slices of ``rows`` for about ``SLICE_SECONDS`` each, every one when it may be sent."""
        seconds = self._seconds(rows.num_rows, rows.nbytes)
        share = 1.0 if seconds <= SLICE_SECONDS else SLICE_SECONDS / seconds
        size = max(1, int(rows.num_rows * share))
        for start in range(0, rows.num_rows, size):
            piece = rows.slice(start, size)
            self.wait(piece.num_rows, piece.nbytes)
            yield piece

    def _seconds(self, records: int, nbytes: int) -> float:
        limits = ((records, self._limit.records), (nbytes, self._limit.bytes))
        return max(count / limit if limit else 0.0 for count, limit in limits)
