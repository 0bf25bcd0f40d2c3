"""What is committed as a group's offset when a shard is done, or a batch is laid out."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from kprod.spark.errors import MarkerError

VERSION = 1
MOST_BYTES = 4_000
"""Brokers take 4,096 unless told otherwise (``offset.metadata.max.bytes``)."""

Ranges = Mapping[str, Sequence[Sequence[int]]]
"""By topic: partition, first offset, last offset, records."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Marker:
    """The shard is done up to and with ``batch``, which has ``rows`` and ``bytes`` there.

    ``shards`` is how many the batch has, None where that cannot change. ``ranges`` are where its
    records are; empty when there was no room for them. ``winners`` makes a layout the decision
    about an atomic batch, or one of ``pieces`` of it (``decision``). Immutable.
    """

    batch: int
    shards: int | None = None
    rows: int = 0
    bytes: int = 0
    run: str = ""
    ranges: Ranges = field(default_factory=dict)
    winners: str | None = None
    pieces: int = 1

    @property
    def offset(self) -> int:
        """What is committed: the batch that comes next, as with any position."""
        return self.batch + 1

    @property
    def metadata(self) -> str:
        """What is committed beside the offset."""
        told: dict[str, Any] = {
            "kprod": VERSION,
            "batch": self.batch,
            "shards": self.shards,
            "rows": self.rows,
            "bytes": self.bytes,
            "run": self.run,
        }
        if self.winners is not None:
            told |= {"winners": self.winners, "pieces": self.pieces}
        whole = json.dumps({**told, "ranges": self.ranges}, separators=(",", ":"))
        if len(whole.encode()) <= MOST_BYTES:
            return whole
        return json.dumps(told, separators=(",", ":"))


def read_marker(offset: int, metadata: bytes, group: str) -> Marker | None:
    """What ``Marker`` wrote; None where nothing is committed (``offset`` is below 0).

    Raises MarkerError for what something else has committed.
    """
    if offset < 0:
        return None
    try:
        told = json.loads(metadata)
        if told["kprod"] != VERSION or told["batch"] != offset - 1:
            raise ValueError(told)
        return Marker(
            batch=int(told["batch"]),
            shards=None if told["shards"] is None else int(told["shards"]),
            rows=int(told["rows"]),
            bytes=int(told["bytes"]),
            run=str(told["run"]),
            ranges=dict(told.get("ranges", {})),
            winners=told.get("winners"),
            pieces=int(told.get("pieces", 1)),
        )
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise MarkerError(
            f"the consumer group {group!r} has committed offset {offset} with metadata that kprod"
            f" did not write: {metadata[:100]!r}; give the job another transaction_prefix"
        ) from error
