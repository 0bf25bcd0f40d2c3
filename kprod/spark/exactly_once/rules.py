"""What a marker, a layout and a clock mean for a task that is about to write its shard."""

from __future__ import annotations

from kprod.spark.errors import (
    RowsChanged,
    ShardCountChanged,
    StaleBatch,
    TransactionTooSlow,
)
from kprod.spark.exactly_once.marker import Marker
from kprod.spark.exactly_once.shard import Shard

SHARE_OF_TIME = 0.5
"""Of a transaction's time-out: what is not done by then is given up before brokers do that."""


def is_done(marker: Marker | None, shard: Shard) -> bool:
    """Whether an attempt at the shard was committed.

    Raises StaleBatch when a later batch was, and ShardCountChanged.
    """
    if marker is None or marker.batch < shard.batch:
        return False
    if marker.batch > shard.batch:
        raise StaleBatch(_stale(marker, shard))
    _check_count(marker, shard)
    return True


def is_laid_out(layout: Marker | None, shard: Shard) -> bool:
    """Whether the number of the batch's shards is on record, and is this one.

    Raises as ``is_done``.
    """
    return is_done(layout, shard)


def was_won(marker: Marker | None, shard: Shard) -> bool:
    """Whether another attempt has done what this one was fenced at."""
    return marker is not None and marker.batch >= shard.batch


def check_rows(marker: Marker, shard: Shard, rows: int, nbytes: int) -> None:
    """Raises RowsChanged when the rows at hand are not those that the marker is about."""
    if (rows, nbytes) != (marker.rows, marker.bytes):
        raise RowsChanged(
            f"{shard} was written before with {marker.rows:,} rows of {marker.bytes:,} bytes, and"
            f" now has {rows:,} of {nbytes:,}: nothing was written or dropped. Either its rows are"
            " not the same when Spark computes them again (write them to a table first, or leave"
            " out what is random or reads a clock), or they belong to something else that goes by"
            " the same name: a copy of the checkpoint or another job needs a job_id of its own"
        )


def check_time(shard: Shard, began: float, now: float, timeout: float) -> None:
    """Raises TransactionTooSlow at half of ``timeout``, the transaction's; all in seconds."""
    if now - began > timeout * SHARE_OF_TIME:
        raise TransactionTooSlow(
            f"{shard}: its transaction has been open for {now - began:,.0f} s, and brokers abort it"
            f" after {timeout:,.0f} s: set transaction_timeout_ms higher (at most the brokers'"
            " transaction.max.timeout.ms, 900,000 by default), or make more and smaller shards"
        )


def check_batch_time(of: Shard, began: float, now: float, timeout: float) -> None:
    """Raises TransactionTooSlow as ``check_time``, for the oldest transaction of a whole batch."""
    if now - began > timeout * SHARE_OF_TIME:
        raise TransactionTooSlow(
            f"batch {of.batch} of {of.layout_id!r} was not committed, and nothing of it is visible:"
            f" its oldest transaction has been open for {now - began:,.0f} s, and brokers abort it"
            f" after {timeout:,.0f} s: set transaction_timeout_ms higher (at most the brokers'"
            " transaction.max.timeout.ms, 900,000 by default), write smaller batches, or say"
            ' delivery="exactly_once", which commits each shard by itself'
        )


def _check_count(marker: Marker, shard: Shard) -> None:
    if shard.shards is not None and marker.shards != shard.shards:
        raise ShardCountChanged(
            f"batch {shard.batch} of {shard.layout_id!r} was begun with {marker.shards} shards, and"
            f" now has {shard.shards}: rows would be lost, or be there twice. Start it with"
            f" shards={marker.shards} until that batch is done; later ones may have another number",
            begun_with=marker.shards,
        )


def _stale(marker: Marker, shard: Shard) -> str:
    return (
        f"{shard}: batch {marker.batch} of it was written already, so nothing was written or"
        " dropped. Another run goes by the same name and is ahead: if the checkpoint of a query was"
        " copied, reset or restored, the copy needs a job_id of its own; a run that was left behind"
        " ends here"
    )
