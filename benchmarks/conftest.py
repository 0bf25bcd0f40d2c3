"""What pytest-benchmark measures is stored as all results are, and no single timings with it."""

from __future__ import annotations

from typing import Any

from benchmarks.provenance import provenance
from benchmarks.result_file import document

STATISTICS = ("min", "q1", "median", "q3", "max", "iqr", "rounds")


def pytest_benchmark_update_json(output_json: dict[str, Any]) -> None:
    """Replace what pytest-benchmark stores by the shape of ``result_file``."""
    kernels = {_name(one): _figures(one) for one in output_json["benchmarks"]}
    output_json.clear()
    output_json |= document(
        question="How many nanoseconds does each operation take: compiled, by a call, from Spark?",
        command="make bench",
        origin=provenance(),
        settings={"unit": "nanoseconds per operation, the loop around it included"},
        figures={"kernels": kernels},
    )


def _name(benchmark: dict[str, Any]) -> str:
    name = str(benchmark["param"] or benchmark["name"])
    return f"{benchmark['group']}: {name}" if benchmark["group"] else name


def _figures(benchmark: dict[str, Any]) -> dict[str, Any]:
    operations = benchmark["extra_info"]["operations"]
    stats = benchmark["stats"]
    spread = {name: round(stats[name] * 1e9 / operations, 1) for name in STATISTICS[:-1]}
    return {**spread, "rounds": stats["rounds"], "question": benchmark["extra_info"]["question"]}
