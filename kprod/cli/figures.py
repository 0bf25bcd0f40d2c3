"""Measures the cost of work in this process, and describes what the figures depend on."""

from __future__ import annotations

import os
import resource
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from kprod.config import ProducerConfig


EMBEDDED = "embedded broker: Python, in a process of its own"


def cores() -> int:
    """The number of processors that this process may use."""
    if hasattr(os, "sched_getaffinity"):  # not on every system
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def producer_options(config: ProducerConfig) -> str:
    """The options that matter most for speed, as text."""
    acks = "all" if config.acks == -1 else str(config.acks)
    idempotent = "idempotent" if config.enable_idempotence else "not idempotent"
    return (
        f"acks={acks}, {idempotent}, batch_size={config.batch_size:,},"
        f" linger_ms={config.linger_ms}, compression={config.compression_type or 'none'},"
        f" {config.security_protocol}"
    )


STATUS = Path("/proc/self/status")
HIGH_WATER = "VmHWM:"


class ProcessCost(NamedTuple):
    """Wall seconds, CPU seconds (user and kernel, all threads), peak memory in bytes."""

    seconds: float
    cpu_seconds: float
    peak_rss_bytes: int


class CostMeter:
    """Measures from its creation on. Only the peak of memory is that of the whole process."""

    def __init__(self) -> None:
        self._cpu = time.process_time()
        self._started = time.perf_counter()

    def read(self) -> ProcessCost:
        """The cost so far."""
        seconds = time.perf_counter() - self._started
        return ProcessCost(seconds, time.process_time() - self._cpu, peak_rss_bytes())


def peak_rss_bytes() -> int:
    """The peak resident memory of this process.

    It is read from the kernel's high-water mark, which ``exec`` resets. ``getrusage`` would include
    the peak of the process that forked this one.
    """
    try:
        lines = STATUS.read_text().splitlines()
    except OSError:
        unit = 1 if sys.platform == "darwin" else 1024  # bytes on macOS, kilobytes elsewhere
        return unit * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    kilobytes = next(line.split()[1] for line in lines if line.startswith(HIGH_WATER))
    return 1024 * int(kilobytes)


PERCENTILES = {"p50": 0.5, "p99": 0.99, "p99.9": 0.999}
BEYOND = 2
"""Samples that must lie beyond a percentile for it to mean more than a single sample."""


def percentiles(seconds: Sequence[float]) -> dict[str, float]:
    """Milliseconds by name of percentile. Percentiles that need more samples are left out.

    The method is nearest rank: a percentile is one of the samples, and is not interpolated.
    """
    ordered = sorted(seconds)
    count = len(ordered)
    return {
        name: 1000 * ordered[int(share * count)]
        for name, share in PERCENTILES.items()
        if count * (1 - share) >= BEYOND
    }
