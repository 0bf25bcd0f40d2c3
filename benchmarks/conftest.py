"""Stored results say what commit and what kind of machine they come from, and no single timings."""

from __future__ import annotations

from typing import Any

MACHINE = ("machine", "system", "python_implementation", "python_version", "python_compiler")
CPU = ("brand_raw", "count", "hz_advertised_friendly")


def pytest_benchmark_update_machine_info(machine_info: dict[str, Any]) -> None:
    """Keep what makes figures comparable; the host's name and its list of features do not."""
    kept = {name: machine_info[name] for name in MACHINE}
    kept["cpu"] = {name: machine_info["cpu"].get(name) for name in CPU}
    machine_info.clear()
    machine_info.update(kept)


def pytest_benchmark_update_json(output_json: dict[str, Any]) -> None:
    """Keep the statistics, drop the thousands of timings they were made from."""
    del output_json["commit_info"]["project"]  # the name of the folder of this clone
    for benchmark in output_json["benchmarks"]:
        del benchmark["stats"]["data"]
