"""The Spark batch that a transaction belongs to, and whether an operator may commit it.

Names and formats are those of ``kprod.spark.exactly_once``. That module is not imported here: it
needs pyspark, which an operator's machine may not have.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from kprod.admin import GroupOffset, OpenTransaction
    from kprod.types import TopicPartition

ATTEMPT = re.compile(r"(?P<job>.+)\.(?P<shard>\d+)/(?P<attempt>\d+)")
"""The transactional id of an attempt of an atomic batch."""
OTHER = re.compile(r"(?P<job>.+)\.(\d+|layout)")
PREFIX = "kprod-spark."
ONE_CALL = re.compile(r".+\.[0-9a-f]{32}(\.\d+)?", re.ASCII)
"""How a job is called that no later start repeats: it has no layout, whatever its prefix."""

OffsetsOf = Callable[[str], "Mapping[TopicPartition, GroupOffset]"]


class Decision(NamedTuple):
    """``winners``: per shard ATTEMPT:PRODUCER ID:EPOCH:LEVEL, or empty."""

    batch: int
    winners: tuple[str, ...]


def refusal(found: OpenTransaction, offsets_of: OffsetsOf) -> str | None:
    """Why an operator must not commit this transaction; None if it may be committed.

    ``offsets_of`` reads the offsets of a group. Ids that do not belong to Spark jobs are accepted.
    """
    attempt = ATTEMPT.fullmatch(found.transactional_id)
    if attempt is None:
        other = OTHER.fullmatch(found.transactional_id)
        if other is None or not (
            other[0].startswith(PREFIX)
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
    """The batch whose decision names this transaction, else None."""
    attempt = ATTEMPT.fullmatch(found.transactional_id)
    if attempt is None or refusal(found, offsets_of) is not None:
        return None
    decision = _decision(attempt["job"], offsets_of)
    return None if decision is None else decision.batch


def _decision(job: str, offsets_of: OffsetsOf) -> Decision | None:
    layout = _marker(offsets_of(f"{job}.layout"))
    if layout is None:
        return None
    text = layout.get("winners") or ""
    for number in range(1, int(layout.get("pieces", 1))):
        piece = _marker(offsets_of(f"{job}.layout/{number}"))
        if piece is None or piece["batch"] != layout["batch"]:
            return Decision(layout["batch"], ())  # a later decision is being written
        text += piece.get("winners") or ""
    return Decision(layout["batch"], tuple(text.split(",")))


def _marker(offsets: Mapping[TopicPartition, GroupOffset]) -> dict[str, Any] | None:
    """The last marker that kprod wrote; None if there is none."""
    found: list[dict[str, Any]] = []
    for one in offsets.values():
        try:
            marker = json.loads(one.metadata)
            if marker["kprod"] == 1 and marker["batch"] == one.offset - 1:
                found.append(marker)
        except (ValueError, KeyError, TypeError, RecursionError):
            continue
    return max(found, key=lambda marker: int(marker["batch"]), default=None)
