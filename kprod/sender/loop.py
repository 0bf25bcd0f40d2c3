"""The sender's loop: one iteration, and the thread that repeats it."""

from __future__ import annotations

import copy
import threading
from collections.abc import Callable, Sequence
from typing import Protocol

from kprod.clock import Clock
from kprod.errors import KprodError, KprodTimeoutError, ProducerClosedError
from kprod.latch import Latch
from kprod.lock import Lock
from kprod.quantities import in_seconds
from kprod.sender.connection_log import forget_frames
from kprod.sender.deadlines import FOREVER, Pending, PendingQueue
from kprod.sender.loop_owner import LoopOwner
from kprod.sender.metadata import MetadataQuery, MetadataRequests
from kprod.sender.network import Network
from kprod.sender.outcomes import Outcomes
from kprod.sender.produce import ProduceRequests
from kprod.sender.transactions import Transactions
from kprod.types import Persisted
from kprod.wire.control import MetadataReply
from kprod.wire.versions import ApiVersions
from kprod_ext import hold_signals, raised_by_signal, sender_begins, sender_ends
from kprod_ext.batch import ProducerBatch

CLOSED = "the producer was closed before the record was acknowledged"
CRASHED = "the producer has ended: its sender loop crashed; make a new one"
GRACE = 0.04
"""Seconds after a deadline for ending the remaining records, and again for publishing their
outcomes."""


class Companion(Protocol):
    """Other work on the sender's connections, in the sender's thread. See ``kprod.telemetry``."""

    def on_api_versions(self, versions: ApiVersions) -> None:
        """A broker's handshake."""

    def leave(self, now: float) -> bool:
        """True if the producer may end now. Called repeatedly once every record has its outcome."""

    def end(self) -> None:
        """The producer has ended."""


class Sender:
    """Runs one iteration at a time: handle what is due, send ready batches, wait for the network.

    It runs in the thread that owns the loop (see ``LoopOwner``): ``SenderThread``, or temporarily a
    caller that waits for an outcome. A simulation calls ``run_once`` itself.
    """

    def __init__(
        self,
        outcomes: Outcomes,
        network: Network,
        metadata_requests: MetadataRequests,
        produce_requests: ProduceRequests,
        clock: Clock,
        loop_owner: LoopOwner,
        *,
        transactions: Transactions | None = None,
    ) -> None:
        self.transactions = transactions
        self._companion: Companion | None = None
        self.loop_owner = loop_owner
        self._calls: PendingQueue[Pending] = PendingQueue()  # of any thread
        self._outcomes = outcomes
        self._partitions = outcomes.partitions
        self.deadlines = outcomes.partitions.deadlines
        self.accumulator = outcomes.partitions.accumulator
        self.metadata = outcomes.metadata
        self.network = network
        self.clock = clock
        self._metadata_requests = metadata_requests
        self.identity = outcomes.partitions.identity
        self._produce_requests = produce_requests
        self.broken_by: BaseException | None = None  # the exception that ended the last iteration
        self._ended_by: KprodError | None = None  # the error that callers get because of it
        self.disowned = 0  # records that ``disown`` has ended; no metric has them
        self._sends_no_more = False  # nothing is queued, and never will be

    def attend(self, companion: Companion) -> None:
        """Let ``companion`` work beside the sender. Call this before the first iteration."""
        self._companion = companion
        self.network.settings.learners.append(companion.on_api_versions)

    @property
    def refusal(self) -> KprodError | None:
        """Why this producer can send nothing any more, or None. Any thread."""
        return self._ended_by or self.identity.fatal

    def run_once(self, longest: float = FOREVER) -> None:
        """Run one iteration of the loop. It waits at most ``longest`` seconds for the network.

        If an iteration raises, it is the last: ``broken_by`` is the cause, and ``abort`` follows.
        What a signal handler raises during the wait does not end the loop.
        """
        try:
            owner = self.loop_owner
            owner.asked, owner.next_check = False, FOREVER
            now, deadlines = self.clock.monotonic(), self.deadlines
            if deadlines.queued or now >= deadlines.first:
                deadlines.fire(now)  # first: records would take the room of a busy connection
            more = self._produce_requests.run(now)
            refusal = self._ended_by or self.identity.fatal
            if refusal is not None:
                self._end(self._partitions.withdraw(now, in_flight=False), refusal, now)
            awaited = owner.awaited
            wait = deadlines.first - now
            if wait > longest:
                wait = longest
            if (
                more
                or wait < 0.0
                or deadlines.queued
                or self.network.connect_requested
                or (awaited is not None and awaited.is_open)
            ):
                wait = 0.0
            owner.next_check = now + wait
            self.network.poll(wait)
        except BaseException as error:
            if not raised_by_signal(error):
                self.broken_by = error
            raise

    def purge(self, reason: KprodError, *, queued: bool, in_flight: bool) -> Latch:
        """Give up the records that are queued, in flight, or both. Any thread.

        The returned latch opens in the next iteration, when they have ended.
        """

        def end_records(now: float) -> None:
            left = self._partitions.withdraw(now, queued=queued, in_flight=in_flight)
            try:
                self._end(left, reason, now)
            finally:
                self._calls.end(purge)

        purge = Purge(end_records)
        self._calls.add(purge)
        self.deadlines.queued.append(purge)
        self.loop_owner.wake()
        return purge.ended

    def fetch_metadata(self, topics: Sequence[str] | None, timeout: float) -> MetadataReply:
        """Ask a broker about ``topics``; None means all. The snapshot does not change. Any thread.

        Waits at most ``timeout`` seconds. Does not check the error codes in the reply. Raises
        KprodTimeoutError, the error of the request, and ProducerClosedError if the producer ends.
        """
        query = MetadataQuery(topics, self._metadata_requests)
        self._calls.add(query)
        self.deadlines.queued.append(query)
        self.loop_owner.wake()
        try:
            query.ended.wait(timeout)
        finally:
            self._calls.withdraw(query)
            query.ended.open()  # nobody asks for it any more
        if query.error is not None:
            raise query.error
        if query.reply is None:
            raise KprodTimeoutError(f"no broker has answered within {in_seconds(timeout)}")
        return query.reply

    @property
    def finished(self) -> bool:
        """True if every record has its outcome, and no transactional call is in progress."""
        if len(self.accumulator.incomplete):
            return False
        return self.transactions is None or not self.transactions.under_way

    def ready_to_close(self, now: float) -> bool:
        """True if the producer can end. It is called repeatedly until then."""
        return self.finished and (self._companion is None or self._companion.leave(now))

    def refuse(self, error: KprodError) -> None:
        """Raise ``error`` in every later call, because the loop has crashed."""
        self._ended_by = error
        self.accumulator.close(error)
        self.metadata.close(error)

    def abort(self, error: KprodError) -> None:
        """Reject new records, end the remaining ones with ``error``, and end every connection."""
        self.accumulator.close()
        self.metadata.close()
        if self.broken_by is not None:  # it may have taken a batch off the wire, and stopped
            for batch in self.accumulator.incomplete.copy():
                batch.maybe_written = batch.maybe_written or batch.attempts > 0
        try:
            self._end_records(error)
        finally:
            self._end_rest(error)

    def _end_records(self, error: KprodError) -> None:
        now = self.clock.monotonic()
        callbacks = self.accumulator.callbacks
        held = callbacks.hold_up()
        try:
            left = self._partitions.withdraw(now)
            self._sends_no_more = True  # last: no batch will get on the wire from here on
            self._end(left, error, now)
        finally:
            if held:
                callbacks.go_on()

    def _end(self, batches: list[ProducerBatch], error: KprodError, now: float) -> None:
        for batch in batches:
            self._outcomes.end(batch, error, now)

    def _end_rest(self, error: KprodError) -> None:
        try:
            self.disown(error)  # first: connections that end look which batches have
        finally:
            try:
                self._end_waits(error)
            finally:
                self.network.close()

    def _end_waits(self, error: KprodError) -> None:
        """End the calls that wait for something other than records."""
        self._calls.close(error)
        if self.transactions is not None:
            self.transactions.end(error)
        self.identity.settled.open()
        if self._companion is not None:
            self._companion.end()

    def free(self) -> None:
        """Free the remaining memory, after the connections have ended."""
        self._outcomes.free()

    def disown(self, error: KprodError) -> None:
        """End every record without an outcome with ``error``, even while the sender is busy.

        Any thread. The sender frees the memory and updates the counters when it continues.
        """
        never_left, maybe = copy.copy(error), error
        maybe.persisted = Persisted.MAYBE
        certain = self._sends_no_more  # first: the sender may set it during this loop
        ended = 0
        for batch in self.accumulator.incomplete.copy():
            known = certain and not (batch.on_wire or batch.maybe_written)
            # A signal handler that raises once the callbacks are in their queue must not hide that:
            # the next call would put them there again.
            if hold_signals(batch.delivery.fail, never_left if known else maybe):
                ended += batch.record_count
        self.disowned += ended


class Purge(Pending):
    """Records that the application gives up. ``fire`` ends them."""

    due = FOREVER

    def __init__(self, fire: Callable[[float], None]) -> None:
        super().__init__()
        self.fire = fire


class SenderThread:
    """Runs the sender's loop until ``request_stop``.

    Any thread may call its methods except ``run``. If an iteration raises, the producer ends. Every
    record without an outcome fails with an error that names the cause, and later calls raise this
    error. The cause is logged once. ``ended`` is called once in the sender's thread, when every
    record has its outcome and no more can be queued.
    """

    def __init__(self, sender: Sender, name: str, ended: Callable[[], None] | None = None) -> None:
        self._sender = sender
        self._loop_owner = sender.loop_owner
        self._loop_owner.work = sender
        self._settled = Latch()  # opens after ``ended``
        self._lock = Lock()  # guards changing _stop_at
        self._stop_at = FOREVER
        self._error = ProducerClosedError(CLOSED)  # of records that are left at the end
        self._last_steps: tuple[Callable[[], None], ...] = (
            *(self._name_cause, self._log_cause, self._abort, sender.free),
            self._loop_owner.close,
            *(() if ended is None else (ended,)),
            self._settled.open,
        )
        self._thread = threading.Thread(target=self.run, name=name, daemon=True)
        self._ident = 0  # until it has begun

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    @property
    def is_current(self) -> bool:
        """True in the thread that runs the loop, which must not wait for the sender."""
        # Idents are reused: another thread may have this one once this thread has ended.
        here = self._ident == threading.get_ident() and not self._settled.is_open
        return here or self._loop_owner.is_owner

    def request_stop(self, deadline: float) -> None:
        """Ask the thread to end when every record has its outcome, or at ``deadline``."""
        with self._lock:
            self._stop_at = min(self._stop_at, deadline)
        self._loop_owner.recall()

    def stop(self, deadline: float) -> bool:
        """Send queued records until ``deadline``, then end the rest: every record has its outcome.

        Returns False if the thread is still busy, for example in a transport that is not part of
        kprod. It then ends later.
        """
        self.request_stop(deadline)
        # Not by Thread.join: interrupted by a signal it takes the thread for ended (bpo-45274).
        left = max(0.0, deadline - self._sender.clock.monotonic())
        settled = self._settled.wait(left + GRACE)
        if settled:
            self._thread.join(GRACE)
        else:
            closed = ProducerClosedError("the producer was closed in the middle of work")
            self._sender.disown(closed)
        return settled

    # The thread -----------------------------------------------------------------------------------

    def run(self) -> None:
        """The work of the thread: run the loop, then end everything."""
        self._ident = threading.get_ident()
        sender_begins()
        try:
            while self._work():
                self._loop_owner.rest()
        except BaseException as error:
            if self._sender.broken_by is None:
                self._sender.broken_by = error
        finally:
            try:
                self._end()
            finally:
                sender_ends()

    def _work(self) -> bool:
        """Run the loop until a waiting caller can run it. False if the thread must end."""
        owner, sender = self._loop_owner, self._sender
        owner.take()
        try:
            while not self._over():
                sender.run_once(self._stop_at - sender.clock.monotonic())
                if owner.wanted and sender.finished:
                    return True
        finally:
            owner.give_up()
        return False

    def _over(self) -> bool:
        if self._sender.broken_by is not None:  # in this thread or in that of a caller
            return True
        if self._stop_at == FOREVER:
            return False
        now = self._sender.clock.monotonic()
        return now >= self._stop_at or self._sender.ready_to_close(now)

    # The end --------------------------------------------------------------------------------------

    def _end(self) -> None:
        """Take each of the last steps, even if another one raises: callers wait for all of them."""
        mistake: BaseException | None = None
        for step in self._last_steps:
            try:
                step()
            except BaseException as error:
                mistake = mistake or error  # later errors may follow from the first
        if mistake is not None:
            raise mistake

    def _name_cause(self) -> None:
        """Make every later call raise an error that names the cause."""
        cause = self._sender.broken_by
        if cause is None:
            return
        self._error = ProducerClosedError(f"{CRASHED}; the cause: {cause!r}")
        self._error.__cause__ = cause
        self._sender.refuse(self._error)

    def _log_cause(self) -> None:
        cause, sender = self._sender.broken_by, self._sender
        if cause is not None:
            sender.network.log.mistake(CRASHED, cause, sender.clock.monotonic())
            forget_frames(cause)  # they hold memory of batches

    def _abort(self) -> None:
        self._loop_owner.recall()
        self._loop_owner.take()
        try:
            self._sender.abort(self._error)
        finally:
            self._loop_owner.give_up()
