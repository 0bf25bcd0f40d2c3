"""What a piece of work costs the process that does it: time, CPU time, memory."""

from __future__ import annotations

import resource
import time
from pathlib import Path
from typing import NamedTuple

STATUS = Path("/proc/self/status")
HIGH_WATER = "VmHWM:"


class ProcessCost(NamedTuple):
    """Seconds on the wall; of CPU, in all threads and the kernel for them; peak memory in bytes."""

    seconds: float
    cpu_seconds: float
    peak_rss_bytes: int


class CostMeter:
    """Measures from where it is made. Memory is the peak since the process began."""

    def __init__(self) -> None:
        self._cpu = time.process_time()
        self._started = time.perf_counter()

    def read(self) -> ProcessCost:
        """The cost so far."""
        seconds = time.perf_counter() - self._started
        return ProcessCost(seconds, time.process_time() - self._cpu, peak_rss_bytes())


def peak_rss_bytes() -> int:
    """The most memory this process has had resident.

    From the kernel's high-water mark, which starts anew with the program; ``getrusage`` would hand
    on the peak of the process that forked it.
    """
    try:
        lines = STATUS.read_text().splitlines()
    except OSError:
        return 1024 * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    kilobytes = next(line.split()[1] for line in lines if line.startswith(HIGH_WATER))
    return 1024 * int(kilobytes)
