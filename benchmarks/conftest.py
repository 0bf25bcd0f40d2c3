"""Stored results name the commit and the kind of machine, not the machine or single timings."""

from __future__ import annotations

from typing import Any


def pytest_benchmark_update_machine_info(machine_info: dict[str, Any]) -> None:
    """Take the host's name out."""
    del machine_info["node"]


def pytest_benchmark_update_json(output_json: dict[str, Any]) -> None:
    """Keep the statistics, drop the thousands of timings they were made from."""
    for benchmark in output_json["benchmarks"]:
        del benchmark["stats"]["data"]
