"""Results as the benchmarks store them, with figures that nobody measured."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from benchmarks.acceptance.__main__ import stored_figures
from benchmarks.acceptance.goals import GOALS, judge
from benchmarks.provenance import provenance
from benchmarks.result_file import write_result
from benchmarks.rivals.comparison import Taken
from benchmarks.rivals.comparisons import comparisons
from benchmarks.spread import spread_of

THREE = ({"records_per_second": 1_234_567.0}, {"records_per_second": 2e6}, None)
FIGURES = (
    "cpu_us_per_record",
    "megabytes_per_second",
    "peak_rss_mb",
    "p50_us",
    "p99_us",
    "idle_cpu_percent",
)


def write_samples(folder: Path) -> None:
    """Store a result of every kind in the folder."""
    origin = provenance()
    made_up = {**dict.fromkeys(FIGURES, 7.5), "sink": {"records": 1}}
    rounds = [None if one is None else {**one, **made_up} for one in THREE]
    chosen = comparisons()
    taken = {one.name: Taken({side: list(rounds) for side in one.sides}) for one in chosen}
    taken[chosen[0].name].problems.append("round 3: <it> failed")
    imports = {"import_ms": [50.0, 60.0], "unwanted": []}
    judged = judge(GOALS[:-1], taken, imports) + judge(GOALS[-1:], {}, {})
    figures = stored_figures(chosen, taken, imports, judged)
    told: dict[str, Any] = {"question": "How?", "command": "python -m it"}
    told |= {"origin": origin, "folder": folder}
    write_result("acceptance", settings={"rounds": 3}, figures=figures, **told)
    spread = spread_of([1.0, 2.0]).as_json()
    cases = {"codec": {"lz4": {"records_per_second": spread, "p50_ms": spread}}}
    write_result("pipeline-quick", settings={}, figures={"cases": cases, "problems": []}, **told)
    kernels = {"append": {**spread, "rounds": 2, "question": "?"}}
    write_result("kernels", settings={}, figures={"kernels": kernels}, **told)
    counted = {"instructions_per_operation": {"append": 12.5}}
    write_result("instructions", settings={}, figures=counted, **told)
