"""The decision about an atomic batch: which attempt at each shard counts, as metadata of offsets.

It is the layout of the batch, written last instead of first: for either mode a layout on record
says that the batch goes forward, and with how many shards.
"""

from __future__ import annotations

from collections.abc import Generator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from kprod.spark.errors import MarkerError
from kprod.spark.exactly_once.marker import Marker
from kprod.spark.exactly_once.shard import Shard
from kprod.spark.exactly_once.steps import PreparedShard, ReadMarker, Step
from kprod.transactional.two_phase_commit import PreparedTransaction

PIECE_BYTES = 3_000
"""Of winners in one group's metadata, beside the rest of a marker: brokers take 4,096 bytes."""


@dataclass(frozen=True, slots=True)
class Decision:
    """What is on record about a batch. ``winners`` has the shards with rows, by number. Immutable.

    ``layout``: the first marker, of the group that is named ``Shard.layout_id``. A layout that
    ``delivery="exactly_once"`` has written names no winners: ``is_atomic`` is False.
    """

    layout: Marker
    winners: Mapping[int, PreparedShard]

    @property
    def is_atomic(self) -> bool:
        return self.layout.winners is not None


def decided(of: Shard, shards: int, prepared: Sequence[PreparedShard]) -> list[tuple[str, Marker]]:
    """The decision that ``prepared`` counts, as markers by group; all go into one transaction."""
    by_number = {one.shard.number: one for one in prepared}
    text = ",".join(_entry(by_number.get(number)) for number in range(shards))
    pieces = [text[at : at + PIECE_BYTES] for at in range(0, len(text), PIECE_BYTES)] or [""]
    return [
        (
            _group(of, number),
            Marker(batch=of.batch, shards=shards, run=of.run, winners=piece, pieces=len(pieces)),
        )
        for number, piece in enumerate(pieces)
    ]


def read_decision(of: Shard, *, wait: bool) -> Generator[Step, Any, Decision | None]:
    """What is on record, of whichever batch; ``wait`` as in ``ReadMarker``.

    Raises MarkerError for a decision that is not whole.
    """
    layout: Marker | None = yield ReadMarker(of.layout_id, wait=wait)
    if layout is None or layout.winners is None or layout.batch != of.batch:
        return None if layout is None else Decision(layout, {})
    text = layout.winners
    for number in range(1, layout.pieces):
        # In the transaction of the first: what is not told yet will be.
        piece: Marker | None = yield ReadMarker(_group(of, number))
        if piece is None or piece.batch < layout.batch or piece.winners is None:
            raise MarkerError(f"{of}: piece {number} of its decision is not there")
        if piece.batch > layout.batch:  # another run goes on meanwhile
            return Decision(piece, {})
        text += piece.winners
    return Decision(layout, dict(_winners(of, text)))


def _group(of: Shard, number: int) -> str:
    return f"{of.layout_id}/{number}" if number else of.layout_id


def _entry(one: PreparedShard | None) -> str:
    if one is None:
        return ""
    found = one.transaction
    level = "" if found.level is None else found.level
    return f"{one.shard.attempt}:{found.producer_id}:{found.epoch}:{level}"


def _winners(of: Shard, text: str) -> Any:
    for number, entry in enumerate(text.split(",")):
        if entry:
            attempt, producer_id, epoch, level = entry.split(":")
            shard = replace(of, number=number, attempt=int(attempt))
            transaction = PreparedTransaction(
                shard.transactional_id,
                int(producer_id),
                int(epoch),
                level=int(level) if level else None,
            )
            yield number, PreparedShard(shard, transaction)
