"""What a producer runs in one process: the sender, its thread, the callbacks; and their rest."""

from __future__ import annotations

import logging
from collections.abc import Callable

from kprod.buffer.batch import ProducerBatch
from kprod.buffer.callbacks import Callbacks
from kprod.clock import in_seconds
from kprod.errors import IllegalStateError, KprodTimeoutError
from kprod.metrics import ProducerMetrics
from kprod.sender.loop import GRACE, Sender, SenderThread
from kprod.types import DeliveryReport

log = logging.getLogger(__name__)

FOREVER = 10.0**9
"""Seconds; longer than any process, short enough for every clock."""


class Engine:
    """Runs from the start until ``stop``. Thread-safe.

    ``callbacks`` are those the sender was assembled with; ``last``, if there is one, is called once
    when every record has its outcome and every callback has returned, in the callbacks' thread.
    """

    def __init__(
        self,
        sender: Sender,
        callbacks: Callbacks,
        metrics: ProducerMetrics,
        client_id: str,
        last: Callable[[], None] | None = None,
    ) -> None:
        self._sender = sender
        self._callbacks = callbacks
        self._metrics = metrics
        self._client_id = client_id
        self._last = last
        self._stopping = False
        self._thread = SenderThread(sender, f"kprod-sender-{client_id}", self._settled)
        self._thread.start()

    def _settled(self) -> None:
        if self._last is not None:
            self._callbacks.put([self._last])
        self._callbacks.stop()

    @property
    def is_sender(self) -> bool:
        """True in the sender's thread, where waiting for what the sender does has no end.

        The application comes there with a log handler that sends what is logged.
        """
        return self._thread.is_current

    def refuse_inside(self, call: str) -> None:
        """Raise IllegalStateError in a thread for which ``call`` would have to wait."""
        if self._callbacks.is_current or self._thread.is_current:
            raise IllegalStateError(f"{call}() inside a delivery callback would wait for itself")

    # Waiting --------------------------------------------------------------------------------------

    def flush(self, timeout: float | None) -> DeliveryReport:
        """See ``KafkaProducer.flush``."""
        self.refuse_inside("flush")
        seconds = FOREVER if timeout is None else timeout
        deadline = self._sender.clock.monotonic() + seconds
        accumulator = self._sender.accumulator
        batches = accumulator.incomplete.copy()
        accumulator.begin_flush()
        try:
            self._sender.baton.about_to_wait()
            told = all(batch.delivery.wait_until_told(self._left(deadline)) for batch in batches)
        finally:
            accumulator.end_flush()
        if not told:
            pending = self.report().pending
            raise KprodTimeoutError(f"flush: {pending} records pending after {in_seconds(seconds)}")
        if not self._callbacks.drain(self._left(deadline)):
            running = self._callbacks.waiting
            raise KprodTimeoutError(
                f"flush: {running} delivery callbacks have not returned after {in_seconds(seconds)}"
            )
        return self.report()

    def stop(self, timeout: float) -> bool:
        """End everything within ``timeout`` seconds; every record has its outcome then.

        True when nothing is left to run. In one of its own threads it does not wait for that.
        """
        self._stopping = True
        self._sender.accumulator.close()
        self._sender.metadata.close()
        deadline = self._sender.clock.monotonic() + timeout
        if self._thread.is_current:
            self._thread.request_stop(deadline)
            return False
        if not self._thread.stop(deadline):
            log.warning("the sender's thread did not end within %g s", timeout)
            return False
        if self._callbacks.is_current:
            return False
        # What failed at the deadline was handed over just now: callbacks that are short have run.
        return self._callbacks.drain(max(GRACE, self._left(deadline)))

    def stop_at_exit(self, timeout: float) -> None:
        """As ``stop``; callbacks that have not begun by then are dropped."""
        stopped_before = self._stopping
        self.stop(timeout)
        self._callbacks.abandon()
        report = self.report()
        if report.failed and not stopped_before:
            log.warning("%r was still open when the interpreter exited: %r", self, report)

    def abandon(self) -> None:
        """In a forked child: it belongs to the parent, and nobody here does its work."""
        self._sender.baton.abandon()

    def _left(self, deadline: float) -> float:
        return max(0.0, deadline - self._sender.clock.monotonic())

    def report(self) -> DeliveryReport:
        """What became of the records until now."""
        pending = sum(map(_pending, self._sender.accumulator.incomplete.copy()))
        failed = self._metrics.records_failed + self._thread.disowned
        return DeliveryReport(self._metrics.records_sent, failed, pending)

    def __repr__(self) -> str:
        return f"<Engine client_id={self._client_id}>"


def _pending(batch: ProducerBatch) -> int:
    return 0 if batch.delivery.done else batch.record_count
