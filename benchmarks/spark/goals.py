"""What writing from Spark shall reach: ratios within a round, and the median of them judged."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from benchmarks.spark.ways import (
    CONFLUENT,
    DEFAULT_SINK,
    ITERATE,
    NO_OP,
    REPARTITIONED,
    ROWS,
    TUNED_SINK,
    WRITE,
)
from benchmarks.spread import spread_of

Turns = Mapping[str, Sequence[Mapping[str, float]]]
"""By way: the figures of each of its turns, one for each round."""

SECONDS, CPU, REQUESTS = "seconds", "cpu_seconds", "requests_per_gb"


@dataclass(frozen=True, slots=True)
class Goal:
    """``figure`` of ``above`` divided by that of ``below``, and where it shall lie. Immutable.

    ``limit`` is the least, or the most, of the median; None: it is only told.
    """

    text: str
    figure: str
    above: str
    below: str
    least: float | None = None
    most: float | None = None

    def judged(self, turns: Turns) -> dict[str, Any] | None:
        """The spread of the ratios and the verdict; None when something was not measured."""
        rounds = zip(turns.get(self.above, ()), turns.get(self.below, ()), strict=False)
        ratios = [
            above[self.figure] / below[self.figure]
            for above, below in rounds
            if above.get(self.figure) and below.get(self.figure)
        ]
        if not ratios:
            return None
        spread = spread_of(ratios)
        reached = (self.least is None or spread.median >= self.least) and (
            self.most is None or spread.median <= self.most
        )
        limits = {"least": self.least, "most": self.most}
        told = {name: limit for name, limit in limits.items() if limit is not None}
        return {"goal": self.text, **told, "reached": reached, "ratio": spread.as_json()}


GOALS = (
    Goal("write is as fast as Spark's tuned sink", SECONDS, TUNED_SINK, WRITE, least=1.0),
    Goal("write takes no more CPU time than it", CPU, WRITE, TUNED_SINK, most=1.0),
    Goal("write beside a no-op mapInArrow", SECONDS, NO_OP, WRITE, least=0.85),
    Goal("write beside confluent's foreachPartition", SECONDS, CONFLUENT, WRITE, least=3.0),
    Goal("rows of an RDD beside merely iterating them", SECONDS, ITERATE, ROWS, least=0.8),
    Goal(
        "requests per GB, repartitioned, beside Spark's sink at its defaults",
        REQUESTS,
        REPARTITIONED,
        DEFAULT_SINK,
        most=0.2,
    ),
    Goal("write beside Spark's sink at its defaults", SECONDS, DEFAULT_SINK, WRITE),
    Goal("CPU time of write beside Spark's sink at its defaults", CPU, WRITE, DEFAULT_SINK),
)


def judged(turns: Turns) -> list[dict[str, Any]]:
    """Every goal whose ways were measured."""
    return [found for goal in GOALS if (found := goal.judged(turns)) is not None]
