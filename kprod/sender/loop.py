"""The sender's turn, and the thread that repeats it."""

from __future__ import annotations

import copy
import threading
import time
from collections.abc import Callable, Sequence
from typing import Protocol

from kprod.buffer.accumulator import RecordAccumulator
from kprod.clock import Clock
from kprod.cluster.metadata import Metadata
from kprod.errors import KprodError, KprodTimeoutError, ProducerClosedError
from kprod.latch import Latch
from kprod.lock import Lock
from kprod.quantities import in_seconds
from kprod.sender.connection_log import forget_frames
from kprod.sender.leadership import SenderLeadership
from kprod.sender.network import Network
from kprod.sender.pending import Pending, PendingQueue
from kprod.sender.rounds.metadata import MetadataQuery, MetadataRound
from kprod.sender.rounds.produce import ProduceRound
from kprod.sender.rounds.telemetry import TelemetryRound
from kprod.sender.transactions import Transactions
from kprod.types import Persisted
from kprod.wire.control import MetadataReply
from kprod_ext import hold_signals, raised_by_signal


class Purge(Pending):
    """Records that the application gives up: those queued, those in flight, or both."""

    __slots__ = ("in_flight", "queued", "reason")

    def __init__(self, reason: KprodError, *, queued: bool, in_flight: bool) -> None:
        super().__init__()
        self.reason = reason
        self.queued = queued
        self.in_flight = in_flight


FOREVER = float("inf")
CLOSED = "the producer was closed before the record was acknowledged"
BROKE_OFF = "the producer has ended: a turn of its sender broke off; make a new one"
ATTEMPTS = 40
"""Attempts at a last step that finds no memory."""
NO_MEMORY = (MemoryError, RuntimeError, SystemError)
"""The last two are Python's own: "can't allocate lock", "returned NULL without an exception"."""
GRACE = 0.04
"""Seconds beyond a deadline to end the records that are left, and as many to hand outcomes over."""
BETWEEN_ATTEMPTS = GRACE / ATTEMPTS


class IdentitySource(Protocol):
    """The round that gets the producer's id and epochs, for idempotence alone or transactions.

    ``settled`` opens once there is one, or never will be.
    """

    settled: Latch

    @property
    def fatal(self) -> KprodError | None:
        """The reason why nothing can be sent any more, or None."""

    @property
    def busy(self) -> bool:
        """True while a caller waits for a request of this round."""

    def run_first(self, now: float) -> float:
        """Before batches are taken: end those that will not leave, let those leave that must.

        Send requests that would find no room behind batches; the rest as ``run``.
        """
        ...

    def run(self, now: float) -> float:
        """Send requests that are due; seconds until there may be more to do."""
        ...

    def end(self, error: KprodError) -> None:
        """The producer has ended: callers that still wait get ``error``."""


class Sender:
    """One turn at a time: send due requests and ready batches, wait, settle the answers.

    Thread: the leader's. ``SenderThread`` leads in the background, for a while a caller that waits
    for an outcome may; a simulation calls ``run_once`` itself.
    """

    def __init__(
        self,
        accumulator: RecordAccumulator,
        metadata: Metadata,
        network: Network,
        metadata_round: MetadataRound,
        identity_round: IdentitySource,
        produce_round: ProduceRound,
        clock: Clock,
        leadership: SenderLeadership,
        transactions: Transactions | None = None,
        telemetry: TelemetryRound | None = None,
    ) -> None:
        self.transactions = transactions
        self.telemetry = telemetry
        self.leadership = leadership
        self.purges: PendingQueue[Purge] = PendingQueue()
        self.accumulator = accumulator
        self.metadata = metadata
        self.network = network
        self.clock = clock
        self._metadata_round = metadata_round
        self._identity_round = identity_round
        self._produce_round = produce_round
        self.broken_by: BaseException | None = None  # the exception that broke off the last turn
        self._ended_by: KprodError | None = None  # the error that callers get because of it
        self.lost = 0  # records of batches that a turn left half done; no metric counts them
        self._sends_no_more = False  # nothing is queued, and never will be

    @property
    def identified(self) -> Latch:
        """Opens once brokers know this producer, or never will, where they need to. Any thread."""
        return self._identity_round.settled

    @property
    def refusal(self) -> KprodError | None:
        """Why nothing of this producer can be sent any more, or None. Any thread."""
        return self._ended_by or self._identity_round.fatal

    def run_once(self, longest: float = FOREVER) -> None:
        """One round of everything; waits at most ``longest`` seconds for the network.

        A turn that breaks off is the last: ``broken_by`` holds the cause, and ``abort`` follows.
        An exception of a signal handler while the turn waits breaks nothing off.
        """
        try:
            self._turn(longest)
        except BaseException as error:
            if not raised_by_signal(error):
                self.broken_by = error
            raise

    def _turn(self, longest: float) -> None:
        self.leadership.looks()
        now = self.clock.monotonic()
        self._purge(now)
        wait = min(self._rounds(now), longest)
        if self.refusal is not None:
            self._produce_round.fail_queued(self.refusal, now)
        if wait < 0.0 or self.network.wants_to_connect or self.leadership.served:
            wait = 0.0
        self.leadership.looks_again_at(now + wait)
        self.network.poll(wait)

    def _purge(self, now: float) -> None:
        while (purge := self.purges.next()) is not None:
            try:
                self._produce_round.purge(
                    purge.reason, now, queued=purge.queued, in_flight=purge.in_flight
                )
            finally:
                self.purges.end(purge)

    def _rounds(self, now: float) -> float:
        """Send what is due; seconds until there may be more to do."""
        self._metadata_round.run(now)  # first, or a busy connection would never have room for it
        wait = FOREVER if self.telemetry is None else self.telemetry.run(now)
        # First: a commit does not wait for batches that linger, and a question to a coordinator
        # gets the room of a busy connection, which records would fill again in each turn.
        wait = min(wait, self._identity_round.run_first(now))
        wait = min(wait, self._produce_round.run(now))
        wait = min(wait, self._identity_round.run(now))  # after: it may have used up the epochs
        # Again: a partition without a leader, or a connection that failed, made it due.
        wait = min(wait, self._metadata_round.run(now))
        return min(wait, self.network.next_event(now))

    def fetch_metadata(self, topics: Sequence[str] | None, timeout: float) -> MetadataReply:
        """The answer of a broker about ``topics``, None for all. Any thread; the snapshot stays.

        Waits at most ``timeout`` seconds. The error codes in the reply are not looked at. Raises
        KprodTimeoutError, ProducerClosedError when the producer ends, and the error of the request.
        """
        query = MetadataQuery(topics)
        queries = self._metadata_round.queries
        queries.add(query)
        self.leadership.wake()
        try:
            query.ended.wait(timeout)
        finally:
            queries.withdraw(query)
        if query.error is not None:
            raise query.error
        if query.reply is None:
            raise KprodTimeoutError(f"no broker has answered within {in_seconds(timeout)}")
        return query.reply

    @property
    def finished(self) -> bool:
        """True when every record has its outcome, and no caller waits for anything else."""
        return len(self.accumulator.incomplete) == 0 and not self._identity_round.busy

    def takes_leave(self, now: float) -> bool:
        """True when the producer may end; called again and again until then."""
        return self.finished and (self.telemetry is None or self.telemetry.leave(now))

    def refuse(self, error: KprodError) -> None:
        """Raise ``error`` in every call from now on: the sender has broken off."""
        self._ended_by = error
        self.accumulator.close(error)
        self.metadata.close(error)

    def abort(self, error: KprodError) -> None:
        """Refuse new records; end those without an outcome in ``error``, and every connection."""
        self.accumulator.close()
        self.metadata.close()
        if self.broken_by is not None:  # the turn may have taken a batch off the wire, and stopped
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
            left = self._produce_round.withdraw()
            self._sends_no_more = True  # last: no batch will get on the wire from here on
            self._produce_round.end(left, error, now)
        finally:
            if held:
                callbacks.go_on()

    def _end_rest(self, error: KprodError) -> None:
        try:
            self.lost += self.disown(error)  # first: connections that end look which batches have
        finally:
            try:
                self._end_waits(error)
            finally:
                self.network.close()

    def _end_waits(self, error: KprodError) -> None:
        """End the calls that wait for something other than records."""
        self.purges.close(error)
        self._metadata_round.queries.close(error)
        self._identity_round.end(error)
        if self.telemetry is not None:
            self.telemetry.end()

    def free(self) -> None:
        """Give back the memory that is left, once the connections have ended."""
        self._produce_round.free()

    def disown(self, error: KprodError) -> int:
        """End every record without an outcome in ``error``, even while the sender is busy.

        Returns how many those were. Any thread. Memory and counters follow when the sender goes on.
        """
        never_left, maybe = copy.copy(error), error
        maybe.persisted = Persisted.MAYBE
        certain = self._sends_no_more  # first: the sender may set it during this loop
        told = 0
        for batch in self.accumulator.incomplete.copy():
            known = certain and not (batch.on_wire or batch.maybe_written)
            # A signal handler that raises once the callbacks are in their queue must not hide that:
            # the next call would put them there again.
            if hold_signals(batch.delivery.fail, never_left if known else maybe):
                told += batch.record_count
        return told


class SenderThread:
    """Repeats the sender's turn until ``request_stop``. Other methods may be called by any thread.

    A turn that breaks off ends the producer (see ``run``), which is the only place for that: every
    record without an outcome gets an error with the cause, the log gets it once, and later calls
    raise it.

    ``ended`` is called once, in the thread, when every record has its outcome and none follows.
    ``disowned`` counts the records that ended without the thread; no metric has them.
    """

    def __init__(self, sender: Sender, name: str, ended: Callable[[], None] | None = None) -> None:
        self.disowned = 0
        self._sender = sender
        self._leadership = sender.leadership
        self._leadership.work = sender
        self._settled = Latch()  # opens after ``ended``
        self._lock = Lock()  # guards changing _stop_at
        self._stop_at = FOREVER
        # Made now: at the end there may be no memory for them.
        self._error = ProducerClosedError(CLOSED)
        self._broken = ProducerClosedError(BROKE_OFF)
        self._last_steps: tuple[Callable[[], None], ...] = (
            *(self._name_cause, self._log_cause, self._abort, self._count, sender.free),
            self._leadership.ended,
            *(() if ended is None else (ended,)),
            self._settled.open,
        )
        self._thread = threading.Thread(target=self.run, name=name, daemon=True)

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    @property
    def is_current(self) -> bool:
        """True in the thread that does the sender's work, which must not wait for the sender."""
        # Idents are reused: another thread may have this one once this thread has ended.
        here = self._thread.ident == threading.get_ident() and not self._settled.is_open
        return here or self._leadership.is_leader

    def request_stop(self, deadline: float) -> None:
        """Ask the thread to end once everything has its outcome, at the latest at ``deadline``."""
        with self._lock:
            self._stop_at = min(self._stop_at, deadline)
        self._leadership.recall()

    def stop(self, deadline: float) -> bool:
        """Send queued records until ``deadline``, then end the rest: every record has its outcome.

        False when the thread is busy elsewhere, as in a transport of others: it ends later.
        """
        self.request_stop(deadline)
        # Not by Thread.join: interrupted by a signal it takes the thread for ended (bpo-45274).
        left = max(0.0, deadline - self._sender.clock.monotonic())
        settled = self._settled.wait(left + GRACE)
        if settled:
            self._thread.join(GRACE)
        else:
            closed = ProducerClosedError("the producer was closed in the middle of work")
            self.disowned += self._sender.disown(closed)
        return settled

    # The thread -----------------------------------------------------------------------------------

    def run(self) -> None:
        """The thread's work: take turns until the end, then end everything."""
        try:
            while self._goes_on():
                pass
        except BaseException as error:
            if self._sender.broken_by is None:
                self._sender.broken_by = error
        finally:
            self._end()

    def _goes_on(self) -> bool:
        """Work, then rest; False when it is over."""
        if self._over():
            return False
        self._leadership.take()
        try:
            self._work()
        finally:
            self._leadership.give_up()
        self._leadership.rest()
        return True

    def _work(self) -> None:
        """Take turns until the end, or until a caller waits that can take them itself."""
        while not self._over():
            self._sender.run_once(self._stop_at - self._sender.clock.monotonic())
            if self._leadership.wanted and self._sender.finished:
                return

    def _over(self) -> bool:
        if self._sender.broken_by is not None:  # in a turn of this thread or of a caller
            return True
        if self._stop_at == FOREVER:
            return False
        now = self._sender.clock.monotonic()
        return now >= self._stop_at or self._sender.takes_leave(now)

    # The end --------------------------------------------------------------------------------------

    def _end(self) -> None:
        """Take each of the last steps even if another one raises: callers wait for each of them.

        A step that finds no memory is taken again in a moment: each may be taken more than once.
        """
        mistake: BaseException | None = None
        taken = attempts = 0
        # Nothing here takes memory: an iterator over the steps would, and there may be none.
        while taken < len(self._last_steps):
            try:
                self._last_steps[taken]()
            except BaseException as error:
                attempts += 1
                if isinstance(error, NO_MEMORY) and attempts < ATTEMPTS:
                    _let_memory_come_back()
                    continue
                mistake = mistake or error  # later errors may follow from the first
            attempts = 0
            taken += 1
        if mistake is not None:
            raise mistake

    def _name_cause(self) -> None:
        """Refuse every call with an error that names the cause."""
        cause = self._sender.broken_by
        if cause is None:
            return
        self._error = self._broken
        self._error.__cause__ = cause
        try:
            self._error.args = (f"{BROKE_OFF}; the cause: {cause!r}",)
        finally:
            self._sender.refuse(self._error)  # also where there is no memory for the text

    def _log_cause(self) -> None:
        cause, sender = self._sender.broken_by, self._sender
        if cause is not None:
            sender.network.log.mistake(BROKE_OFF, cause, sender.clock.monotonic())
            forget_frames(cause)  # they hold memory of batches

    def _abort(self) -> None:
        self._leadership.recall()
        self._leadership.take()
        try:
            self._sender.abort(self._error)
        finally:
            self._leadership.give_up()

    def _count(self) -> None:
        lost, self._sender.lost = self._sender.lost, 0
        self.disowned += lost


def _let_memory_come_back() -> None:
    try:
        time.sleep(BETWEEN_ATTEMPTS)
    except NO_MEMORY:  # for what Python tells an audit hook
        return
