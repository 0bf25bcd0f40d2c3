"""The engine of a producer in one process: the sender, its thread and the callbacks.

The thread runs the sender's loop until ``stop``. If an iteration raises, the producer ends.
"""

from __future__ import annotations

import copy
import logging
import threading
from collections.abc import Callable
from contextlib import ExitStack

from kprod.errors import (
    IllegalStateError,
    KprodTimeoutError,
    ProducerClosedError,
    still_being_sent,
)
from kprod.latch import Latch
from kprod.metrics import ProducerMetrics
from kprod.quantities import counted, in_seconds
from kprod.sender.connection_log import forget_frames
from kprod.sender.loop import Sender
from kprod.types import DeliveryReport
from kprod_ext import sender_begins, sender_ends
from kprod_ext.batch import ProducerBatch

log = logging.getLogger(__name__)

LONGEST_WAIT = 10.0**9
"""Seconds; longer than any process, short enough for every clock."""


CLOSED = "the producer was closed before the record was acknowledged"
CRASHED = "the producer has ended: its sender loop crashed; make a new one"
GRACE = 0.04
"""Seconds after a deadline for ending the remaining records, and again for publishing their
outcomes."""


class Engine:
    """Runs from its creation until ``stop``. Thread-safe.

    If an iteration of the loop raises, every record without an outcome fails with an error that
    names the cause, and later calls raise this error. The cause is logged once.

    ``last`` is called once in the callbacks' thread, when every record has its outcome and every
    callback has returned.
    """

    def __init__(
        self,
        sender: Sender,
        metrics: ProducerMetrics,
        client_id: str,
        last: Callable[[], None] | None = None,
    ) -> None:
        self._sender = sender
        self._loop_owner = sender.loop_owner
        self._loop_owner.work = sender
        self._callbacks = sender.accumulator.callbacks
        self._metrics = metrics
        self._client_id = client_id
        self._last = last
        self.is_stopping = False  # True once ``stop`` was called, even while parts still run
        self._logged = logging.NOTSET  # the level of the last line about the end
        self._settled = Latch()  # opens when every record has its outcome, and no more can come
        self._error = ProducerClosedError(CLOSED)  # of records that are left at the end
        self._callbacks.start()
        self._thread_ident = 0  # until it has begun
        self._thread = threading.Thread(
            target=self._run, name=f"kprod-sender-{client_id}", daemon=True
        )
        self._thread.start()

    @property
    def is_sender(self) -> bool:
        """True in the thread that runs the loop, where a wait for the sender would never end.

        Application code may run there, for example a log handler that sends log lines to Kafka.
        """
        # Idents are reused: another thread may have this one once the sender's has ended.
        here = self._thread_ident == threading.get_ident() and not self._settled.is_open
        return here or self._loop_owner.is_owner

    def refuse_inside(self, call: str) -> None:
        """Raise IllegalStateError in a thread for which ``call`` would have to wait."""
        if self._callbacks.is_current or self.is_sender:
            raise IllegalStateError(f"{call}() inside a delivery callback would wait for itself")

    # Waiting --------------------------------------------------------------------------------------

    def flush(self, timeout: float | None) -> DeliveryReport:
        """See ``KafkaProducer.flush``."""
        self.refuse_inside("flush")
        seconds = LONGEST_WAIT if timeout is None else timeout
        deadline = self._sender.clock.monotonic() + seconds
        accumulator = self._sender.accumulator
        batches = accumulator.incomplete.copy()
        flush, flushes = object(), accumulator.flushes
        try:
            flushes.add(flush)
            self._loop_owner.about_to_wait()
            ended = all(each.delivery.wait_until_notified(self._left(deadline)) for each in batches)
        finally:
            flushes.discard(flush)  # compiled: no signal handler can raise before it
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
        return self._loop_owner.wait(ended, timeout, True)

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
        self.is_stopping = True
        if self._sender.transactions is not None:
            self._sender.transactions.close()
        self._sender.accumulator.close()
        self._sender.metadata.close()
        deadline = self._sender.clock.monotonic() + timeout
        self._loop_owner.recall(deadline)
        if self.is_sender:
            return False
        # Not by Thread.join: interrupted by a signal it takes the thread for ended (bpo-45274).
        stopped = self._settled.wait(self._left(deadline) + GRACE)
        if stopped:
            self._thread.join(GRACE)
        else:  # it is busy, for example in a transport that is not part of kprod, and ends later
            closed = ProducerClosedError("the producer was closed in the middle of work")
            self._sender.disown(closed)
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
        stopped_before = self.is_stopping
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
                "%s has ended: delivered %s, failed %d",
                self._client_id,
                counted(report.delivered, "record"),
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

    def __repr__(self) -> str:
        return f"<KafkaProducer client_id={self._client_id}>"

    # The thread -----------------------------------------------------------------------------------

    def _run(self) -> None:
        """The work of the thread: run the loop, then end everything."""
        self._thread_ident = threading.get_ident()
        sender_begins()
        try:
            self._loop_owner.run(self._sender)
        except BaseException as error:
            if self._sender.broken_by is None:
                self._sender.broken_by = error
        finally:
            try:
                self._end()
            finally:
                sender_ends()

    # The end --------------------------------------------------------------------------------------

    def _end(self) -> None:
        """End everything, even where a part of it raises: callers wait for all of it."""
        with ExitStack() as later:  # the last one first
            later.callback(self._settled.open)
            later.callback(self._callbacks.stop)
            if self._last is not None:
                later.callback(self._callbacks.put, [self._last])
            later.callback(self._loop_owner.close)
            later.callback(self._sender.partitions.free)
            later.callback(self._abort)
            cause = self._sender.broken_by
            if cause is not None:
                self._tell_cause(cause)

    def _tell_cause(self, cause: BaseException) -> None:
        """Make every later call raise an error that names the cause, and log it."""
        sender = self._sender
        self._error = ProducerClosedError(f"{CRASHED}; the cause: {cause!r}")
        self._error.__cause__ = cause
        sender.refuse(self._error)
        try:
            sender.network.log.internal_error(CRASHED, cause, sender.clock.monotonic())
        finally:
            forget_frames(cause)  # they hold memory of batches

    def _abort(self) -> None:
        self._loop_owner.recall(0.0)
        self._loop_owner.take()
        try:
            self._sender.abort(self._error)
        finally:
            self._loop_owner.give_up()


def _pending(batch: ProducerBatch) -> int:
    return 0 if batch.delivery.done else batch.record_count
