"""Markers: offsets that record finished shards and the layouts of batches; and checks of them."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from kprod.exactly_once.errors import (
    MarkerError,
    RowsChanged,
    ShardCountChanged,
    StaleBatch,
    TransactionTooSlow,
)
from kprod.exactly_once.shard import MOST_SHARDS, Shard

VERSION = 1
MOST_BYTES = 4_000
"""Maximum size of a marker. Brokers allow 4,096 by default (``offset.metadata.max.bytes``)."""

Ranges = Mapping[str, Sequence[Sequence[int]]]
"""By topic: lists of partition, first offset, last offset, and number of records."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Marker:
    """Records that the shard is written up to and including ``batch``. Immutable.

    ``rows`` and ``bytes`` are those of that batch. ``shards`` is the batch's number of shards, or
    None if it cannot change. ``digest`` is the sum of the rows' hashes modulo 2**64, or None if
    they have no hashes. ``topic`` is the topic of the rows (``Shard.target``), ``run`` is the call
    that wrote them, and ``start`` is as in ``Shard``. ``ranges`` says where the records are; it is
    empty if it did not fit into the marker. A layout with ``winners`` is the commit decision about
    an atomic batch, or one of its ``pieces`` (``protocol.Decision``).
    """

    batch: int
    shards: int | None = None
    rows: int = 0
    bytes: int = 0
    digest: int | None = None
    topic: str | None = None
    run: str = ""
    start: str = ""
    ranges: Ranges = field(default_factory=dict)
    winners: str | None = None
    pieces: int = 1

    @property
    def offset(self) -> int:
        """The offset to commit: the number of the next batch."""
        return self.batch + 1

    @property
    def metadata(self) -> str:
        """The metadata to commit with the offset."""
        fields: dict[str, Any] = {
            "kprod": VERSION,
            "batch": self.batch,
            "shards": self.shards,
            "rows": self.rows,
            "bytes": self.bytes,
            "digest": self.digest,
            "topic": self.topic,
            "run": self.run,
        }
        if self.start:
            fields["start"] = self.start
        if self.winners is not None:
            fields |= {"winners": self.winners, "pieces": self.pieces}
        whole = json.dumps({**fields, "ranges": self.ranges}, separators=(",", ":"))
        if len(whole.encode()) <= MOST_BYTES:
            return whole
        return json.dumps(fields, separators=(",", ":"))


def read_marker(offset: int, metadata: bytes | str, group: str) -> Marker | None:
    """Parse a marker; return None if nothing is committed (``offset`` is below 0).

    Raises MarkerError if kprod did not write it.
    """
    if offset < 0:
        return None
    try:
        return _parsed(json.loads(metadata), offset - 1)
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise MarkerError(
            f"the consumer group {group!r} has committed offset {offset} with metadata that was"
            f" not written by kprod: {metadata[:100]!r}. Use a different transaction_prefix for the"
            " job"
        ) from error


def _parsed(fields: Any, batch: int) -> Marker:
    """The marker of ``batch``. Raises ValueError, KeyError and TypeError for anything else."""
    if _integer(fields["kprod"]) != VERSION or _integer(fields["batch"]) != batch:
        raise ValueError(f"not a marker of batch {batch}")
    shards, digest = fields["shards"], fields.get("digest")
    topic, winners = fields.get("topic"), fields.get("winners")
    if winners is None and "pieces" in fields:
        raise ValueError("pieces of no decision")
    return Marker(
        batch=batch,
        shards=None if shards is None else _integer(shards, 1, MOST_SHARDS),
        rows=_integer(fields["rows"]),
        bytes=_integer(fields["bytes"]),
        digest=None if digest is None else _integer(digest, most=(1 << 64) - 1),
        topic=None if topic is None else _text(topic),
        run=_text(fields["run"]),
        start=_text(fields.get("start", "")),
        ranges=_ranges(fields.get("ranges", {})),
        winners=None if winners is None else _text(winners),
        pieces=_integer(fields.get("pieces", 1), 1),
    )


def _integer(value: Any, least: int = 0, most: int = 2**63 - 1) -> int:
    if type(value) is not int or not least <= value <= most:
        raise ValueError(f"expected an integer of {least} to {most}")
    return value


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise TypeError("expected a text")
    return value


def _ranges(fields: Any) -> Ranges:
    if not isinstance(fields, dict):
        raise TypeError("expected ranges by topic")
    for found in fields.values():
        for numbers in _list(found):
            if len([_integer(number) for number in _list(numbers)]) != 4:
                raise ValueError("expected partition, first offset, last offset, records")
    return fields


def _list(value: Any) -> list[Any]:
    if not isinstance(value, list):
        raise TypeError("expected a list")
    return value


SHARE_OF_TIME = 0.5
"""Fraction of a transaction's time-out after which an attempt gives up, before brokers abort it."""


def is_done(marker: Marker | None, shard: Shard) -> bool:
    """Whether the marker is one of this batch: the shard is written, or the layout is stored.

    Raises StaleBatch if a later batch was committed, RowsChanged if the rows went to another topic,
    and ShardCountChanged.
    """
    if marker is None or marker.batch < shard.batch:
        return False
    if marker.batch > shard.batch:
        raise StaleBatch(_stale(marker, shard))
    if marker.topic is not None and marker.topic != shard.target:
        before, now = _place(marker.topic), _place(shard.target)
        raise RowsChanged(
            f"{shard} was started for {before}, and would now be written to {now}. Nothing was"
            " written or dropped. Use a different job_id for each topic. To complete a batch of a"
            f" query, write it to {before} first"
        )
    _check_count(marker, shard)
    return True


def was_won(marker: Marker | None, shard: Shard) -> bool:
    """Whether an attempt at the shard was committed, for this batch or a later one."""
    return marker is not None and marker.batch >= shard.batch


def check_rows(
    marker: Marker, shard: Shard, *, rows: int, nbytes: int | None, digest: int | None
) -> None:
    """Raise RowsChanged if these rows are not the ones that the marker describes.

    A value that is None, as an argument or in the marker, is unknown and is not compared.
    """
    found, wanted = f"{rows:,} rows", f"{marker.rows:,} rows"
    if nbytes is not None:
        found, wanted = f"{found} of {nbytes:,} bytes", f"{wanted} of {marker.bytes:,} bytes"
    if found == wanted and None not in (digest, marker.digest) and digest != marker.digest:
        found = "as many different rows"
    if found != wanted:
        raise RowsChanged(
            f"{shard} was already written with {wanted}, and now has {found}. Nothing was written"
            " or dropped. There are three possible causes. The rows differ when Spark computes"
            " them again: write them to a table first, or remove expressions that are random or"
            " read the clock. A task calls its writer more than once: pass all its rows in one"
            " call. Something else uses the same name: give a copy of the checkpoint, a new"
            " checkpoint or another job its own job_id"
        )


def check_time(shard: Shard, began: float, now: float, timeout: float) -> None:
    """Raise TransactionTooSlow after half of the transaction's ``timeout``.

    Times are in seconds.
    """
    if now - began > timeout * SHARE_OF_TIME:
        raise too_slow(shard, now - began, timeout)


def too_slow(shard: Shard, seconds: float, timeout: float) -> TransactionTooSlow:
    """The error for a transaction that has been open for ``seconds``."""
    return TransactionTooSlow(
        f"{shard}: its transaction has been open for {seconds:,.0f} s, and brokers abort it"
        f" after {timeout:,.0f} s: increase transaction_timeout_ms (at most the brokers'"
        " transaction.max.timeout.ms, 900,000 by default), or use more and smaller shards"
    )


def check_batch_time(of: Shard, began: float, now: float, timeout: float) -> None:
    """As ``check_time``, for the oldest transaction of a whole batch."""
    if now - began > timeout * SHARE_OF_TIME:
        raise TransactionTooSlow(
            f"batch {of.batch} of {of.job_name!r} was not committed, and none of its rows are"
            f" visible: its oldest transaction has been open for {now - began:,.0f} s, and brokers"
            f" abort it after {timeout:,.0f} s. Increase transaction_timeout_ms (at most the"
            " brokers' transaction.max.timeout.ms, 900,000 by default), write smaller batches, or"
            ' use delivery="exactly_once", which commits each shard separately'
        )


def _check_count(marker: Marker, shard: Shard) -> None:
    if shard.shards is not None and marker.shards != shard.shards:
        raise ShardCountChanged(
            f"batch {shard.batch} of {shard.job_name!r} was started with {marker.shards} shards,"
            f" and now has {shard.shards}: rows would be lost or duplicated. Use"
            f" shards={marker.shards} until this batch is complete. Later batches may have a"
            " different number",
            begun_with=marker.shards,
        )


def _place(target: str) -> str:
    return f"the topic {target!r}" if target else "the topics that its rows contain"


def _stale(marker: Marker, shard: Shard) -> str:
    return (
        f"{shard}: batch {marker.batch} was already written, so nothing was written or dropped."
        " A later run has used the same name. If the checkpoint of a query was copied, reset or"
        " restored, give the copy its own job_id. If this run was replaced by a newer one, no"
        " action is needed"
    )
