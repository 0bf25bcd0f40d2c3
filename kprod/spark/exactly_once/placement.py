"""Rows that carry the number of their shard, so that a task can prove that they are all its own."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from itertools import chain
from typing import Any, NamedTuple

from kprod.errors import ConfigError

SHARD_COLUMN = "kprod_shard"
COUNT_SHIFT = 32
NUMBER_MASK = (1 << COUNT_SHIFT) - 1
MOST_SHARDS = 10_000

MOVED = (
    "rows have been moved after sharded(): a shuffle, a repartition or a coalesce behind it; make"
    " sharded() the last step before writing"
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


def placed_batches(batches: Iterable[Any], partition: int) -> tuple[Layout | None, Iterator[Any]]:
    """The layout that the record batches carry, and the batches without it.

    None when they have no such column. Raises ConfigError, and while they are iterated, for rows
    that do not belong to the task of ``partition``.
    """
    remaining = iter(batches)
    first = next(remaining)
    if SHARD_COLUMN not in first.schema.names:
        return None, chain((first,), remaining)
    while not first.num_rows:
        try:
            first = next(remaining)
        except StopIteration:
            return None, iter(())
    layout = Layout.of(first.column(SHARD_COLUMN)[0].as_py() or 0)
    _check(layout, partition)
    return layout, (_stripped(batch, layout) for batch in chain((first,), remaining))


def _stripped(batch: Any, layout: Layout) -> Any:
    import pyarrow.compute as pc

    column = batch.column(SHARD_COLUMN)
    if column.null_count:
        raise ConfigError(f"{SHARD_COLUMN} is null: {MOVED}")
    span = pc.min_max(column).as_py()
    if batch.num_rows and not span["min"] == span["max"] == layout.packed:
        raise ConfigError(MOVED)
    return batch.drop_columns([SHARD_COLUMN])


def placed_items(items: Iterable[Any], partition: int) -> tuple[Layout | None, Iterator[Any]]:
    """The layout of Rows and dicts; None for other items, which have no shard column."""
    remaining = iter(items)
    first = next(remaining)
    if SHARD_COLUMN not in _names(first):
        return None, chain((first,), remaining)
    layout = Layout.of(first[SHARD_COLUMN] or 0)
    _check(layout, partition)
    return layout, (_stripped_item(item, layout) for item in chain((first,), remaining))


def _names(item: Any) -> Any:
    return item if isinstance(item, Mapping) else getattr(item, "__fields__", ())


def _stripped_item(item: Any, layout: Layout) -> dict[str, Any]:
    row = dict(item) if isinstance(item, Mapping) else item.asDict()
    if row.pop(SHARD_COLUMN, None) != layout.packed:
        raise ConfigError(MOVED)
    return row


def _check(layout: Layout, partition: int) -> None:
    if layout.number != partition or not 0 < layout.shards <= MOST_SHARDS:
        raise ConfigError(f"task {partition} has rows of shard {layout.number}: {MOVED}")
