"""What kprod wants to reach when no client is told any option"""

from __future__ import annotations

from benchmarks.acceptance.goals import CPU, LEAST, MOST, RATE, SPEED, Goal, Ratio
from benchmarks.rivals import comparisons as c


def _goal(
    number: int, said: str, figure: str, sides: tuple[str, str], bound: str, limit: float
) -> Goal:
    """A ratio of two sides; ``said`` begins with the name of the comparison."""
    name, _, what = said.partition(": ")
    side, other = sides
    text = f"{side}, {what} against {other}"
    return Goal(number, text, Ratio(f"{name}-defaults", figure, side, other), bound, limit)


_RIVAL = (c.KPROD, c.CALLBACK)
DEFAULT_GOALS = (
    _goal(1, "keyed: 100 B with keys: records/s", RATE, _RIVAL, LEAST, 5),
    _goal(1, "keyed: 100 B with keys: CPU time per record", CPU, _RIVAL, MOST, 0.2),
    _goal(1, "keyed: 100 B with keys: records/s", RATE, (c.KPROD, c.KAFKA_PYTHON), LEAST, 60),
    _goal(1, "keyed: 100 B with keys: records/s", RATE, (c.KPROD, c.AIOKAFKA), LEAST, 40),
    _goal(1, "keyed-1000: 1,000 B with keys: MB/s", SPEED, _RIVAL, LEAST, 2.5),
    _goal(2, "bulk: 100 B: records/s", RATE, (c.KPROD_MANY, c.BATCH), LEAST, 8),
    _goal(2, "bulk: 100 B: records/s", RATE, (c.KPROD_ARROW, c.BATCH), LEAST, 11),
    _goal(3, "lone: one record sent and waited for: p50", "p50_us", _RIVAL, MOST, 1),
    _goal(3, "lone: one record sent and waited for: p99", "p99_us", _RIVAL, MOST, 1),
)
