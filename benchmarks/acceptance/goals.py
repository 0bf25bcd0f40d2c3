"""What kprod wants to reach, against whom, and in which figure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from benchmarks.rivals import comparisons as c
from benchmarks.rivals.comparison import Taken
from benchmarks.spread import Spread, spread_of

RATE, SPEED, CPU = "records_per_second", "megabytes_per_second", "cpu_us_per_record"
MOST, LEAST = "at most", "at least"
SPARE_MB = 60
MOST_RSS_MB = c.BUFFER_MEMORY / 1e6 + SPARE_MB
IMPORT_MS = 100
IMPORT_FIGURES = "import"


class Measurable(Protocol):
    """How a goal finds its values."""

    def values(self, taken: Mapping[str, Taken], imports: Mapping[str, Any]) -> Sequence[float]:
        """One value a round, none when it was not measured."""


@dataclass(frozen=True, slots=True)
class Ratio:
    """One side against another in the same comparison, round by round."""

    comparison: str
    figure: str
    side: str
    other: str

    def values(self, taken: Mapping[str, Taken], imports: Mapping[str, Any]) -> Sequence[float]:
        """See Measurable."""
        if self.comparison not in taken:
            return ()
        return taken[self.comparison].ratios(self.figure, self.side, self.other)


@dataclass(frozen=True, slots=True)
class Figure:
    """One side's figure as it is."""

    comparison: str
    figure: str
    side: str

    def values(self, taken: Mapping[str, Taken], imports: Mapping[str, Any]) -> Sequence[float]:
        """See Measurable."""
        rounds = taken[self.comparison].rounds[self.side] if self.comparison in taken else ()
        return [measured[self.figure] for measured in rounds if measured]


@dataclass(frozen=True, slots=True)
class Import:
    """What importing costs."""

    figure: str

    def values(self, taken: Mapping[str, Taken], imports: Mapping[str, Any]) -> Sequence[float]:
        """See Measurable. Of names, how many there are."""
        found = imports.get(self.figure)
        if found is None:
            return ()
        return [len(found)] if self.figure == "unwanted" else found


@dataclass(frozen=True, slots=True)
class Goal:
    """``limit`` in ``unit`` is the most or the least of the median."""

    number: int
    text: str
    source: Measurable
    bound: str
    limit: float
    unit: str = "x"


@dataclass(frozen=True, slots=True)
class Judged:
    """A goal and what was measured for it; None: nothing was."""

    goal: Goal
    spread: Spread | None

    @property
    def reached(self) -> bool:
        """Whether the median keeps to the limit."""
        if self.spread is None:
            return False
        if self.goal.bound == MOST:
            return self.spread.median <= self.goal.limit
        return self.spread.median >= self.goal.limit

    def as_json(self) -> dict[str, Any]:
        """Goal, measured, and whether it was reached."""
        return {
            "number": self.goal.number,
            "goal": self.goal.text,
            "bound": self.goal.bound,
            "limit": round(self.goal.limit, 2),
            "unit": self.goal.unit,
            "measured": None if self.spread is None else self.spread.as_json(),
            "reached": self.reached,
        }


def judge(
    goals: Sequence[Goal], taken: Mapping[str, Taken], imports: Mapping[str, Any]
) -> list[Judged]:
    """Every goal against what was measured; ratios are taken round by round, then their median."""
    found = [(goal, goal.source.values(taken, imports)) for goal in goals]
    return [Judged(goal, spread_of(values) if values else None) for goal, values in found]


GOALS = (
    Goal(
        1,
        "send, keyed 100 B: records/s against confluent produce + callback",
        Ratio("keyed", RATE, c.KPROD, c.CALLBACK),
        LEAST,
        5,
    ),
    Goal(
        1,
        "the same: CPU time per record against confluent's",
        Ratio("keyed", CPU, c.KPROD, c.CALLBACK),
        MOST,
        0.25,
    ),
    Goal(
        1,
        "the same: records/s against kafka-python",
        Ratio("keyed", RATE, c.KPROD, c.KAFKA_PYTHON),
        LEAST,
        40,
    ),
    Goal(
        1,
        "the same: records/s against aiokafka",
        Ratio("keyed", RATE, c.KPROD, c.AIOKAFKA),
        LEAST,
        20,
    ),
    Goal(
        1,
        "send, keyed 1,000 B: MB/s against confluent produce + callback",
        Ratio("keyed-1000", SPEED, c.KPROD, c.CALLBACK),
        LEAST,
        4,
    ),
    Goal(
        2,
        "send_many, 100 B: records/s against confluent produce_batch",
        Ratio("bulk", RATE, c.KPROD_MANY, c.BATCH),
        LEAST,
        10,
    ),
    Goal(
        2,
        "send_arrow, 100 B: records/s against confluent produce_batch",
        Ratio("bulk", RATE, c.KPROD_ARROW, c.BATCH),
        LEAST,
        25,
    ),
    Goal(
        2,
        "send_arrow: records/s against sendmsg of the same bytes",
        Ratio("bulk", RATE, c.KPROD_ARROW, c.LOOPBACK),
        LEAST,
        0.6,
    ),
    *(
        Goal(
            3,
            f"one record sent and waited for: {name} against {rival}",
            Ratio("lone", f"{name}_us", c.KPROD, side),
            MOST,
            limit,
        )
        for rival, side, limit in (
            ("confluent", c.CALLBACK, 1.0),
            ("kafka-python", c.KAFKA_PYTHON, 0.3),
        )
        for name in ("p50", "p99")
    ),
    *(
        Goal(
            4,
            f"{codec}, 1 KB of JSON: records/s against confluent at the same level",
            Ratio(codec, RATE, c.KPROD, c.CALLBACK),
            LEAST,
            2,
        )
        for codec in ("lz4", "zstd")
    ),
    Goal(
        5,
        f"peak RSS for 10,000,000 records: buffer_memory + {SPARE_MB} MB",
        Figure("memory", "peak_rss_mb", c.DROPPED),
        MOST,
        MOST_RSS_MB,
        "MB",
    ),
    Goal(
        6,
        "CPU time per keyed record: 10,000 partitions in use against 6",
        Ratio("partitions", CPU, c.MANY, c.FEW),
        MOST,
        2,
    ),
    Goal(
        6,
        "nothing to send, 100,000 partitions known, 10,000 used before: CPU time",
        Figure("idle", "idle_cpu_percent", c.IDLE_SOME),
        MOST,
        2,
        "% of a core",
    ),
    Goal(7, "import kprod", Import("import_ms"), MOST, IMPORT_MS, "ms"),
    Goal(
        7,
        "import kprod: packages that it must not bring along (asyncio, kio, pyarrow, pyspark)",
        Import("unwanted"),
        MOST,
        0,
        "packages",
    ),
)
AVRO_GOALS = (
    Goal(
        1,
        "send, Avro of ten fields: records/s against confluent with its serializer",
        Ratio("avro", RATE, c.KPROD_AVRO, c.CONFLUENT_AVRO),
        LEAST,
        3,
    ),
    Goal(
        2,
        "a Spark task, Avro of ten fields: records/s against confluent row by row",
        Ratio("avro-spark", RATE, c.KPROD_AVRO_TASK, c.CONFLUENT_AVRO_TASK),
        LEAST,
        5,
    ),
)
