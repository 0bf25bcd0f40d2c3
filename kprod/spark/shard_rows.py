"""Sends the rows of a shard in a transaction, or compares them with the shard's marker.

Rows may contain the number of their shard. A task can then verify that all rows are its own.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import chain
from typing import TYPE_CHECKING, Any, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from kprod.errors import ConfigError
from kprod.exactly_once.marker import Marker, Ranges, check_rows
from kprod.exactly_once.shard import MOST_SHARDS, Shard
from kprod.exactly_once.steps import Written
from kprod.spark.executor_producer import JobProducer, MeasuringProducer, TaskProducer
from kprod.spark.python_worker import (
    acknowledge_at_once,
    check_rows_ended,
    freeze_modules,
    log_for_spark,
)
from kprod.spark.write_result import OffsetRange

if TYPE_CHECKING:
    from kprod.producer import KafkaProducer

SHARD_COLUMN = "kprod_shard"
HASH_COLUMN = "kprod_shard_hash"
"""The hash that determined the shard of the row."""
COUNT_SHIFT = 32
NUMBER_MASK = (1 << COUNT_SHIFT) - 1

MOVED = (
    "rows have been moved after sharded(), by a shuffle, repartition() or coalesce(). Call"
    " sharded() as the last step before writing, and do not coalesce what a writer returns"
)


class Layout(NamedTuple):
    """Shard ``number`` of ``shards``."""

    number: int
    shards: int

    @classmethod
    def of(cls, packed: int) -> Layout:
        """Decode the value of the column."""
        return cls(packed & NUMBER_MASK, packed >> COUNT_SHIFT)

    @property
    def packed(self) -> int:
        return self.shards << COUNT_SHIFT | self.number


def check_count(shards: Any) -> int:
    """Raise ConfigError for an invalid number of shards."""
    if not isinstance(shards, int) or isinstance(shards, bool) or not 1 <= shards <= MOST_SHARDS:
        raise ConfigError(f"shards: expected a number from 1 to {MOST_SHARDS:,}; got {shards!r}")
    return shards


class TaskRows:
    """The items of a task: record batches, or Rows, dicts and so on. For one thread only.

    ``seconds`` is how long the task waited for the items. ``count`` is the number of rows that
    ``each`` has returned. ``layout`` is read by ``place`` from the columns that ``sharded`` adds;
    None if there are none. ``each`` drops these columns. ``digest`` is the sum of the hashes of the
    rows modulo 2**64, which does not depend on the order of rows; None if there is no column of
    hashes.
    """

    def __init__(self, items: Iterable[Any]) -> None:
        """Prepare the worker, so that the JVM sends the rows sooner, and take the first item."""
        acknowledge_at_once()
        freeze_modules()
        log_for_spark()
        self.items = iter(items)
        first = next(self.items, _NOTHING)
        self.is_empty = first is _NOTHING
        self.are_batches = isinstance(first, pa.RecordBatch)
        self.seconds = 0.0
        self.layout: Layout | None = None
        self.count = 0
        self.digest: int | None = None
        if not self.is_empty:
            self.items = chain((first,), self.items)

    def place(self, partition: int) -> Layout | None:
        """Read the layout from the first row. Raises ConfigError if another task should have it.

        ``is_empty`` becomes True if a shard has only batches without rows.
        """
        first = next(self.items)
        if SHARD_COLUMN in (first.schema.names if self.are_batches else _names(first)):
            while self.are_batches and not first.num_rows:
                first = next(self.items, None)
                if first is None:
                    self.is_empty = True
                    return None
            packed = first[SHARD_COLUMN][0].as_py() if self.are_batches else first[SHARD_COLUMN]
            layout = Layout.of(packed or 0)
            if layout.number != partition or not 0 < layout.shards <= MOST_SHARDS:
                raise ConfigError(f"task {partition} has rows of shard {layout.number}: {MOVED}")
            self.layout = layout
        self.items = chain((first,), self.items)
        return self.layout

    def each(self, tick: Callable[[], None] = lambda: None) -> Iterator[Any]:
        """The remaining items, as records; ``tick`` is called before each item is taken.

        If ``tick`` raises, no item is lost: another call returns the remaining ones. Raises
        ConfigError for rows that do not belong to this task, and ConnectionAbortedError if Spark
        has closed the input before the last row.
        """
        while True:
            tick()
            started = time.monotonic()
            try:
                item = next(self.items)
            except StopIteration:
                check_rows_ended()
                return
            finally:
                self.seconds += time.monotonic() - started
            if self.layout is None:
                self.count += item.num_rows if self.are_batches else 1
            elif self.are_batches:
                item = self._take_batch(item, self.layout)
            else:
                item = self._take_item(item, self.layout)
            yield item

    def _take_batch(self, batch: Any, layout: Layout) -> Any:
        column, names = batch.column(SHARD_COLUMN), [SHARD_COLUMN]
        if column.null_count:
            raise ConfigError(f"{SHARD_COLUMN} is null: {MOVED}")
        span = pc.min_max(column).as_py()
        if batch.num_rows and not span["min"] == span["max"] == layout.packed:
            raise ConfigError(MOVED)
        hashes = None
        if HASH_COLUMN in batch.schema.names:
            names.append(HASH_COLUMN)
            hashes = pc.sum(batch.column(HASH_COLUMN)).as_py() or 0  # wraps, as the digest does
        self._count(batch.num_rows, hashes)
        return batch.drop_columns(names)

    def _take_item(self, item: Any, layout: Layout) -> Any:
        row = dict(item) if isinstance(item, Mapping) else item.asDict()
        if row.pop(SHARD_COLUMN, None) != layout.packed:
            raise ConfigError(MOVED)
        self._count(1, row.pop(HASH_COLUMN, None))
        return row

    def _count(self, rows: int, hashes: int | None) -> None:
        self.count += rows
        if hashes is not None:
            self.digest = ((self.digest or 0) + hashes) % (1 << 64)


_NOTHING = object()


def _names(item: Any) -> Any:
    return item if isinstance(item, Mapping) else getattr(item, "__fields__", ())


@dataclass(kw_only=True)
class ShardTask:
    """Writes the ``rows`` of a task as a shard, for a ``Runner``. For one thread only.

    ``send`` passes the rows to a ``TaskProducer`` or a ``MeasuringProducer``, and calls its second
    argument repeatedly meanwhile. ``producer`` is the producer that has sent the rows, if any.
    """

    rows: TaskRows
    send: Callable[[Any, Callable[[], None]], None]
    of_job: JobProducer
    producer: TaskProducer | None = None

    def write(self, producer: KafkaProducer, tick: Callable[[], None]) -> Written:
        """Send every row in the open transaction. Raises as ``TaskProducer`` and ``each``."""
        task = TaskProducer(producer, self.of_job, in_transaction=True)
        self.producer = task
        self.send(task, tick)
        task.finish()
        check_rows_ended(required=True)  # again: Spark may have killed the task meanwhile
        ranges = _ranges(task.ranges())
        return Written(rows=task.rows, bytes=task.bytes, digest=self.rows.digest, ranges=ranges)

    def compare(self, marker: Marker, shard: Shard) -> None:
        """Raise RowsChanged unless the rows are the ones that the marker describes."""
        if self.of_job.policy.on_row_error != "fail":
            return  # what becomes of a row may be the broker's choice
        nbytes = None
        if self.producer is None:
            measured = MeasuringProducer()
            self.send(measured, lambda: None)
            rows, nbytes = measured.rows, measured.bytes
        else:  # another attempt was quicker: some rows were sent
            for _ in self.rows.each():
                pass
            rows = self.rows.count
        check_rows(marker, shard, rows=rows, nbytes=nbytes, digest=self.rows.digest)


def _ranges(offsets: Iterable[OffsetRange]) -> Ranges:
    ranges: dict[str, list[list[int]]] = {}
    for found in offsets:
        place = [found.partition, found.first, found.last, found.records]
        ranges.setdefault(found.topic, []).append(place)
    return ranges
