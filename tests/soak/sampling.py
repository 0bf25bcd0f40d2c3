"""Samples of what processes hold, taken from outside while they run."""

from __future__ import annotations

import statistics
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import NamedTuple

from tests.soak.trend import Point
from tests.support.held_resources import HeldResources, descendants, held_resources

SECONDS = 2.0
PYTHON = "python"


class Sample(NamedTuple):
    """What one process, or a family of them, held at a time in hours, during a cycle of turns."""

    hours: float
    cycle: int
    process: str
    held: HeldResources


class Sampler:
    """Takes a sample of every process each ``seconds``. ``cycle`` counts those that are complete.

    ``processes`` by name: what they hold when asked. One that has ended gives no sample.
    """

    def __init__(
        self, processes: Mapping[str, Callable[[], HeldResources]], seconds: float = SECONDS
    ) -> None:
        self.cycle = 0
        self.samples: list[Sample] = []
        self.started = time.monotonic()
        self._processes = processes
        self._seconds = seconds
        self._over = threading.Event()
        self._sampling: Future[None] | None = None

    @property
    def hours(self) -> float:
        """Since it was made."""
        return (time.monotonic() - self.started) / 3600

    @contextmanager
    def running(self) -> Iterator[None]:
        """Sample for the length of a ``with`` block."""
        with ThreadPoolExecutor(1) as pool:
            self._sampling = pool.submit(self._run)
            try:
                yield
            finally:
                self._over.set()
            self._sampling.result()

    def end_cycle(self) -> None:
        """What is sampled from now on is of the next cycle. Raises what has ended the sampling."""
        if self._sampling is not None and self._sampling.done():
            self._sampling.result()
        self.cycle += 1

    def _run(self) -> None:
        while not self._over.wait(self._seconds):
            for name, held in self._processes.items():
                with suppress(ProcessLookupError):
                    self.samples.append(Sample(self.hours, self.cycle, name, held()))


def python_family(pid: int) -> HeldResources:
    """A driver of Spark and its Python workers together, without the virtual machine."""
    held = held_resources(pid)
    for each in descendants(pid):
        with suppress(FileNotFoundError, ProcessLookupError):  # it has ended meanwhile
            if Path(f"/proc/{each}/comm").read_text().startswith(PYTHON):
                held += held_resources(each)
    return held


def points_of(samples: Sequence[Sample], process: str, measure: str, cycles: range) -> list[Point]:
    """The median of each of those cycles; ``measure`` is a field of ``HeldResources``."""
    found: dict[int, list[tuple[float, float]]] = defaultdict(list)
    for sample in samples:
        if sample.process == process and sample.cycle in cycles:
            found[sample.cycle].append((sample.hours, getattr(sample.held, measure)))
    return [
        Point(*(statistics.median(column) for column in zip(*of_cycle, strict=True)))
        for _, of_cycle in sorted(found.items())
    ]
