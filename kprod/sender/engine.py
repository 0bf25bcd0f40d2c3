"""The engine of a producer in one process: the sender, its thread and the callbacks."""

from __future__ import annotations

import copy
import logging
from collections.abc import Callable

from kprod.buffer.callbacks import Callbacks
from kprod.errors import IllegalStateError, KprodTimeoutError, still_being_sent
from kprod.latch import Latch
from kprod.metrics import ProducerMetrics
from kprod.quantities import counted, in_seconds
from kprod.sender.loop import GRACE, Sender, SenderThread
from kprod.types import DeliveryReport
from kprod_ext.batch import ProducerBatch

log = logging.getLogger(__name__)

FOREVER = 10.0**9
"""Seconds; longer than any process, short enough for every clock."""


class Engine:
    """Runs from its creation until ``stop``. Thread-safe.

    ``callbacks`` are those that the sender was assembled with. ``last`` is called once in their
    thread, when every record has its outcome and every callback has returned.
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
        callbacks.start()
        self._logged = logging.NOTSET  # the level of the last line about the end
        self._thread = SenderThread(sender, f"kprod-sender-{client_id}", self._settled)
        self._thread.start()

    def _settled(self) -> None:
        if self._last is not None:
            last, self._last = [self._last], None  # once, even if this is called again
            self._callbacks.put(last)
        self._callbacks.stop()

    @property
    def is_stopping(self) -> bool:
        """True once ``stop`` was called, even while parts of the engine still run."""
        return self._stopping

    @property
    def is_sender(self) -> bool:
        """True in the sender's thread, where a wait for the sender would never end.

        Application code may run there, for example a log handler that sends log lines to Kafka.
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
            self._sender.loop_owner.about_to_wait()
            ended = all(each.delivery.wait_until_notified(self._left(deadline)) for each in batches)
        finally:
            accumulator.end_flush()
        if not ended:
            pending = counted(self.report().pending, "record")
            raise still_being_sent(f"flush: {pending} pending after {in_seconds(seconds)}")
        if not self._callbacks.drain(self._left(deadline)):
            running = self._callbacks.waiting
            raise still_being_sent(
                f"flush: {running} delivery callbacks have not returned after {in_seconds(seconds)}"
            )
        return self.report()

    def wait(self, ended: Latch, timeout: float) -> bool:
        """Wait at most ``timeout`` seconds for the sender to open ``ended``; True if it did."""
        return self._sender.loop_owner.wait(ended, timeout, True)

    def await_producer_id(self, timeout: float) -> None:
        """See ``KafkaProducer.await_producer_id``."""
        if not self.wait(self._sender.identity.settled, timeout):
            raise KprodTimeoutError(f"no broker gave a producer id within {in_seconds(timeout)}")
        if self._sender.refusal is not None:
            raise copy.copy(self._sender.refusal)

    def blocking_time(self, longest: float) -> float:
        """The seconds that a call may wait: ``longest``, but 0 in the sender's thread."""
        return 0.0 if self.is_sender else longest

    def drain_callbacks(self, timeout: float) -> bool:
        """Wait at most ``timeout`` seconds until the callbacks that are due now have returned."""
        return self._callbacks.drain(timeout)

    def stop(self, timeout: float) -> bool:
        """End everything within ``timeout`` seconds. Every record then has its outcome.

        Returns True if nothing is left to run. In one of the engine's own threads, it does not
        wait, and returns False.
        """
        self._stopping = True
        if self._sender.transactions is not None:
            self._sender.transactions.close()
        self._sender.accumulator.close()
        self._sender.metadata.close()
        deadline = self._sender.clock.monotonic() + timeout
        if self._thread.is_current:
            self._thread.request_stop(deadline)
            return False
        stopped = self._thread.stop(deadline)
        self._log_losses()
        if not stopped:
            log.warning("the sender's thread did not end within %g s", timeout)
            return False
        if self._callbacks.is_current:
            return False
        # Records that failed at the deadline were handed over just now: short callbacks have run.
        return self._callbacks.drain(max(GRACE, self._left(deadline)))

    def stop_at_exit(self, timeout: float) -> None:
        """Like ``stop``, but drop the callbacks that have not begun when it returns."""
        stopped_before = self._stopping
        self.stop(timeout)
        self._callbacks.abandon()
        if not stopped_before and self.report().failed:
            log.warning("%s was still open when the interpreter exited", self._client_id)

    def _log_losses(self) -> None:
        """Log the counts of the final report once.

        At the end of a ``with`` block and at exit, the application does not get the report.
        """
        report = self.report()
        level = logging.WARNING if report.failed else logging.DEBUG
        if level > self._logged:
            self._logged = level
            log.log(
                level,
                "%s has ended: %d records were delivered, %d failed",
                self._client_id,
                report.delivered,
                report.failed,
            )

    def abandon(self) -> None:
        """Called in a forked child: the engine and its thread belong to the parent."""
        self._sender.network.abandon()

    def _left(self, deadline: float) -> float:
        return max(0.0, deadline - self._sender.clock.monotonic())

    def report(self) -> DeliveryReport:
        """The current counts of records by outcome."""
        pending = sum(map(_pending, self._sender.accumulator.incomplete.copy()))
        failed = self._metrics.records_failed + self._sender.disowned
        return DeliveryReport(self._metrics.records_sent, failed, pending)

    def metrics(self) -> dict[str, dict[str, float]]:
        """See ``KafkaProducer.metrics``."""
        return self._metrics.groups(self._sender.clock.monotonic())

    def __repr__(self) -> str:
        return f"<KafkaProducer client_id={self._client_id}>"


def _pending(batch: ProducerBatch) -> int:
    return 0 if batch.delivery.done else batch.record_count
