"""Finds the Spark batch of a transaction, and decides whether an operator may commit it."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, NamedTuple

from kprod.exactly_once.errors import MarkerError
from kprod.exactly_once.marker import Marker, read_marker
from kprod.exactly_once.shard import OF_ATTEMPT, PREFIX

if TYPE_CHECKING:
    from kprod.admin import GroupOffset, OpenTransaction
    from kprod.types import TopicPartition

OTHER = re.compile(r"(?P<job>.+)\.(\d+|layout)", re.DOTALL)
ONE_CALL = re.compile(r".+\.[0-9a-f]{32}(\.\d+)?", re.ASCII)
"""The name of a job that no later start can resume: it has no layout, whatever its prefix."""

OffsetsOf = Callable[[str], "Mapping[TopicPartition, GroupOffset]"]


class Decision(NamedTuple):
    """The decision about a batch: which attempt at each shard counts.

    ``winners`` has a text for each shard: ATTEMPT:PRODUCER ID:EPOCH:LEVEL, or "" if the shard has
    no rows.
    """

    batch: int
    winners: tuple[str, ...]


def refusal(found: OpenTransaction, offsets_of: OffsetsOf) -> str | None:
    """Why an operator must not commit this transaction; None if there is no reason.

    ``offsets_of`` reads the offsets of a group. Transactions that do not belong to Spark jobs may
    be committed.
    """
    attempt = OF_ATTEMPT.fullmatch(found.transactional_id)
    if attempt is None:
        other = OTHER.fullmatch(found.transactional_id)
        if other is None or not (
            other[0].startswith(f"{PREFIX}.")
            or ONE_CALL.fullmatch(other["job"])
            or _decision(other["job"], offsets_of) is not None
        ):
            return None
        return "a task of a Spark job had not written all of its rows"
    decision = _decision(attempt["job"], offsets_of)
    if decision is None:
        return "its batch is not decided: start the job again, or abort it"
    number = int(attempt["shard"])
    entry = decision.winners[number] if number < len(decision.winners) else ""
    counted = f"{attempt['attempt']}:{found.producer_id}:{found.epoch}"
    if entry.rpartition(":")[0] == counted:
        return None
    return (
        f"the decision about batch {decision.batch}, the last decided one, does not name it"
        f" (producer id {found.producer_id}, epoch {found.epoch}): it belongs to another"
        " attempt or to the next batch, and committing it would store rows twice"
    )


def batch_of(found: OpenTransaction, offsets_of: OffsetsOf) -> int | None:
    """The batch whose commit decision includes this transaction; None if there is none."""
    attempt = OF_ATTEMPT.fullmatch(found.transactional_id)
    if attempt is None or refusal(found, offsets_of) is not None:
        return None
    decision = _decision(attempt["job"], offsets_of)
    return None if decision is None else decision.batch


def _decision(job: str, offsets_of: OffsetsOf) -> Decision | None:
    layout = _marker(f"{job}.layout", offsets_of)
    if layout is None:
        return None
    text = layout.winners or ""
    for number in range(1, layout.pieces):
        piece = _marker(f"{job}.layout/{number}", offsets_of)
        if piece is None or piece.batch != layout.batch:
            return Decision(layout.batch, ())  # a later decision is being written
        text += piece.winners or ""
    return Decision(layout.batch, tuple(text.split(",")))


def _marker(group: str, offsets_of: OffsetsOf) -> Marker | None:
    """The last marker that kprod wrote; None if there is none."""
    found: list[Marker] = []
    for one in offsets_of(group).values():
        with suppress(MarkerError):
            marker = read_marker(one.offset, one.metadata, group)
            found += [] if marker is None else [marker]
    return max(found, key=lambda marker: marker.batch, default=None)
