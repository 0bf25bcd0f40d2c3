"""Checks the producer after every iteration: I11, I17, idle spinning, logged errors."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager

from kprod.metrics import ProducerMetrics
from kprod.sender.loop import Sender
from kprod_ext.batch import ProducerBatch
from tests.simulation.events import SimClock
from tests.simulation.history import History
from tests.simulation.setup import Setup

MAX_IDLE_ITERATIONS = 300
A_MOMENT = 0.01
ESTIMATE_SLACK = 64  # bytes by which the size of a first record may be over-estimated
EXPECTED = "the delivery callback"


class _Listener(logging.Handler):
    """An error in the log is a bug that the producer survived."""

    def __init__(self, history: History) -> None:
        super().__init__(logging.ERROR)
        self._history = history

    def emit(self, record: logging.LogRecord) -> None:
        text = record.getMessage()
        if not text.startswith(EXPECTED):
            cause = record.exc_info[1] if record.exc_info else None
            self._history.violated("I14", f"logged: {text} {cause!r}")


class Samples:
    """``hopeless``: the run would not end by itself."""

    def __init__(
        self,
        setup: Setup,
        sender: Sender,
        metrics: ProducerMetrics,
        history: History,
        clock: SimClock,
    ) -> None:
        self.hopeless = False
        self._batch_size = setup.batch_size
        self._grows = setup.growth > 1
        self._compressed = setup.compression is not None
        self._sender = sender
        self._metrics = metrics
        self._history = history
        self._clock = clock
        self._live: set[ProducerBatch] = set()
        self._seen: tuple[int, ...] = ()
        self._last_time = -1.0
        self._idle_iterations = 0

    @contextmanager
    def listening(self) -> Iterator[None]:
        logger = logging.getLogger("kprod")
        before = logger.level, logger.propagate
        handler = _Listener(self._history)
        logger.addHandler(handler)
        logger.setLevel(logging.ERROR)
        logger.propagate = False
        try:
            yield
        finally:
            logger.removeHandler(handler)
            logger.setLevel(before[0])
            logger.propagate = before[1]

    def take(self) -> None:
        accumulator, metrics = self._sender.accumulator, self._metrics
        seen = (
            accumulator.pool.available,
            len(accumulator.incomplete),
            metrics.records_sent,
            metrics.records_failed,
            len(self._history.accepted),
        )
        if seen == self._seen:
            self._spinning()
            return
        self._seen = seen
        incomplete = accumulator.incomplete.copy()
        self._metrics_add_up(incomplete)
        if not self._compressed:  # compressed sizes are not predictable
            self._memory_adds_up(incomplete)

    def _spinning(self) -> None:
        """Count an iteration without effect; with acks=0 requests need not wait."""
        if self._clock.now > self._last_time + A_MOMENT:
            self._last_time, self._idle_iterations = self._clock.now, 0
        self._idle_iterations += 1
        if self._idle_iterations > MAX_IDLE_ITERATIONS:
            self.give_up("I16", f"{self._idle_iterations} idle iterations within {A_MOMENT} s")

    def give_up(self, invariant: str, why: str) -> None:
        if not self.hopeless:
            self._history.violated(invariant, why)
        self.hopeless = True

    def _metrics_add_up(self, incomplete: set[ProducerBatch]) -> None:
        pending = sum(batch.record_count for batch in incomplete)
        metrics = self._metrics
        known = metrics.records_sent + metrics.records_failed + pending
        if known != len(self._history.accepted):
            self._history.violated(
                "I17", f"{metrics} and {pending} pending, of {len(self._history.accepted)} sent"
            )

    def _memory_adds_up(self, incomplete: set[ProducerBatch]) -> None:
        """Memory is used exactly by batches without an outcome and batches being sent."""
        live = self._live
        live.difference_update([batch for batch in live if not batch.on_wire])
        live.update(incomplete)
        least = most = 0
        for batch in live:
            if not _is_part(batch):
                size = batch.size
                least += max(self._batch_size, size)
                most += max(self._batch_size, size + ESTIMATE_SLACK)
                if size > self._batch_size and self._grows:
                    # Every chunk but the last may have free space, less than the next record.
                    most += self._batch_size + 2 * size
        pool = self._sender.accumulator.pool
        used = pool.total - pool.available
        if not least <= used <= most:
            self._history.violated("I11", f"{used} bytes in use, {least} to {most} by batches")

    def all_given_back(self, when: str) -> None:
        pool = self._sender.accumulator.pool
        if pool.available != pool.total:
            self._history.violated("I11", f"{pool.total - pool.available} bytes in use {when}")


def _is_part(batch: ProducerBatch) -> bool:
    """Halves of a batch that was too large have memory of their own."""
    return batch.drain_order is not None and len(batch.drain_order) > 1
