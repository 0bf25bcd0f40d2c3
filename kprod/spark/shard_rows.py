"""The rows of a shard in a task: sent in its transaction, or compared with its marker.

Rows may carry the number of their shard, so that a task can prove that they are all its own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import chain
from typing import TYPE_CHECKING, Any, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from kprod.errors import ConfigError
from kprod.exactly_once.marker import Marker, Ranges, check_rows
from kprod.exactly_once.shard import MOST_SHARDS, Shard
from kprod.exactly_once.steps import Written
from kprod.spark.acknowledgements import RowPolicy
from kprod.spark.executor_producer import MeasuringProducer, TaskProducer
from kprod.spark.write_result import OffsetRange

if TYPE_CHECKING:
    from kprod.producer import KafkaProducer

SHARD_COLUMN = "kprod_shard"
HASH_COLUMN = "kprod_shard_hash"
"""The hash that has put the row into its shard."""
COUNT_SHIFT = 32
NUMBER_MASK = (1 << COUNT_SHIFT) - 1

MOVED = (
    "rows have been moved after sharded(), by a shuffle, repartition() or coalesce(). Call"
    " sharded() as the last step before writing"
)


class Layout(NamedTuple):
    """Shard ``number`` of ``shards``."""

    number: int
    shards: int

    @classmethod
    def of(cls, packed: int) -> Layout:
        """From what the column has."""
        return cls(packed & NUMBER_MASK, packed >> COUNT_SHIFT)

    @property
    def packed(self) -> int:
        return self.shards << COUNT_SHIFT | self.number


def check_count(shards: Any) -> int:
    """Raises ConfigError for a number of shards that cannot be."""
    if not isinstance(shards, int) or isinstance(shards, bool) or not 1 <= shards <= MOST_SHARDS:
        raise ConfigError(f"shards: expected a number from 1 to {MOST_SHARDS:,}; got {shards!r}")
    return shards


class PlacedRows(Iterator[Any]):
    """The items of a task, which are checked, without the columns that ``sharded`` has added.

    ``layout`` is what those columns say; None where there are none. Then nothing is counted. Else
    ``rows`` have passed, and ``digest`` is the sum of their hashes modulo 2**64, None without a
    column of hashes: equal for the same rows in any order. Iterating raises ConfigError for rows
    that do not belong to this task. Thread: one.
    """

    def __init__(
        self, items: Iterator[Any], layout: Layout | None, take: Callable[[Any, Layout], _Taken]
    ) -> None:
        self.layout = layout
        self.rows = 0
        self.digest: int | None = None
        self._items = items
        self._take = take

    def __next__(self) -> Any:
        item = next(self._items)
        if self.layout is None:
            return item
        taken = self._take(item, self.layout)
        self.rows += taken.rows
        if taken.hashes is not None:
            self.digest = ((self.digest or 0) + taken.hashes) % (1 << 64)
        return taken.item

    def drain(self) -> None:
        """Count what is left."""
        for _ in self:
            pass


class _Taken(NamedTuple):
    item: Any
    rows: int
    hashes: int | None


def placed_rows(items: Iterable[Any], partition: int) -> PlacedRows:
    """The items of a task: record batches, Rows or dicts; others have no such columns.

    There is one at least. Raises ConfigError for rows of another task.
    """
    remaining = iter(items)
    first = next(remaining)
    arrow = isinstance(first, pa.RecordBatch)
    take = _take_batch if arrow else _take_item
    if SHARD_COLUMN not in (first.schema.names if arrow else _names(first)):
        return PlacedRows(chain((first,), remaining), None, take)
    while arrow and not first.num_rows:
        try:
            first = next(remaining)
        except StopIteration:
            return PlacedRows(iter(()), None, take)
    number = first.column(SHARD_COLUMN)[0].as_py() if arrow else first[SHARD_COLUMN]
    layout = Layout.of(number or 0)
    if layout.number != partition or not 0 < layout.shards <= MOST_SHARDS:
        raise ConfigError(f"task {partition} has rows of shard {layout.number}: {MOVED}")
    return PlacedRows(chain((first,), remaining), layout, take)


def _take_batch(batch: Any, layout: Layout) -> _Taken:
    column = batch.column(SHARD_COLUMN)
    if column.null_count:
        raise ConfigError(f"{SHARD_COLUMN} is null: {MOVED}")
    span = pc.min_max(column).as_py()
    if batch.num_rows and not span["min"] == span["max"] == layout.packed:
        raise ConfigError(MOVED)
    if HASH_COLUMN not in batch.schema.names:
        return _Taken(batch.drop_columns([SHARD_COLUMN]), batch.num_rows, None)
    hashes = pc.sum(batch.column(HASH_COLUMN)).as_py() or 0  # wraps, as the digest does
    return _Taken(batch.drop_columns([SHARD_COLUMN, HASH_COLUMN]), batch.num_rows, hashes)


def _names(item: Any) -> Any:
    return item if isinstance(item, Mapping) else getattr(item, "__fields__", ())


def _take_item(item: Any, layout: Layout) -> _Taken:
    row = dict(item) if isinstance(item, Mapping) else item.asDict()
    if row.pop(SHARD_COLUMN, None) != layout.packed:
        raise ConfigError(MOVED)
    return _Taken(row, 1, row.pop(HASH_COLUMN, None))


@dataclass(kw_only=True)
class TaskRows:
    """The rows of one attempt at a shard, for the ``Runner``. Thread: one.

    ``send`` sends them by a ``TaskProducer``, or by what measures them, and calls its second
    argument meanwhile. ``placed`` counts them, if they were placed. ``producer`` is what has sent
    them, once they are.
    """

    send: Callable[[Any, Callable[[], None]], None]
    placed: PlacedRows | None = None
    policy: RowPolicy = field(default_factory=RowPolicy)
    timeout: float | None = None
    producer: TaskProducer | None = None

    def write(self, producer: KafkaProducer, tick: Callable[[], None]) -> Written:
        """Send every row in the open transaction. Raises as ``TaskProducer``."""
        task = TaskProducer(producer, self.timeout, self.policy, in_transaction=True)
        self.producer = task
        self.send(task, tick)
        task.finish()
        return Written(
            rows=task.rows, bytes=task.bytes, digest=self._digest(), ranges=_ranges(task.ranges())
        )

    def compare(self, marker: Marker, shard: Shard) -> None:
        """Raise RowsChanged unless the rows are those that the marker is about."""
        if self.policy.on_row_error != "fail":
            return  # what becomes of a row may be the broker's choice
        if self.producer is None:
            measured = MeasuringProducer()
            self.send(measured, lambda: None)
            rows, nbytes = measured.rows, measured.bytes
            check_rows(marker, shard, rows=rows, nbytes=nbytes, digest=self._digest())
        elif self.placed is not None:  # another attempt was quicker: some of the rows were sent
            self.placed.drain()
            check_rows(marker, shard, rows=self.placed.rows, nbytes=None, digest=self._digest())

    def _digest(self) -> int | None:
        return None if self.placed is None else self.placed.digest


def _ranges(offsets: Iterable[OffsetRange]) -> Ranges:
    ranges: dict[str, list[list[int]]] = {}
    for found in offsets:
        place = [found.partition, found.first, found.last, found.records]
        ranges.setdefault(found.topic, []).append(place)
    return ranges
