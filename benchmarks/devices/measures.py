"""The turns that devices are judged by: those of the acceptance run, at about two seconds each."""

from __future__ import annotations

from dataclasses import replace

from benchmarks.rivals.comparisons import (
    FEW,
    KPROD,
    KPROD_ARROW,
    KPROD_MANY,
    MANY,
    MANY_HASTY,
    comparisons,
)
from benchmarks.rivals.turn import Turn

SCALE = 0.5


def _measures() -> dict[str, Turn]:
    sides = {one.name: one.sides for one in comparisons(SCALE)}
    return {
        "keyed": sides["keyed"][KPROD],
        "keyed-1000": sides["keyed-1000"][KPROD],
        "lone": sides["lone"][KPROD],
        "lone-busy": replace(sides["lone"][KPROD], busy=True),
        "send_many": sides["bulk"][KPROD_MANY],
        "send_arrow": sides["bulk"][KPROD_ARROW],
        "lz4": sides["lz4"][KPROD],
        "zstd": sides["zstd"][KPROD],
        "6-partitions": sides["partitions"][FEW],
        "10000-partitions": sides["partitions"][MANY],
        "hasty": sides["partitions"][MANY_HASTY],
    }


MEASURES = _measures()
"""By name."""

FIGURES = {
    "throughput": ("records_per_second", "cpu_us_per_record"),
    "lone": ("p50_us", "p99_us", "cpu_us_per_record"),
}
"""Which figures of a turn are compared, by what it measures."""
