"""The sender's loop: one iteration, and who runs it.

The owner of the loop is the sender's own thread, or a caller that waits for an outcome anyway. A
lone ``send(...).get()`` would need two switches between threads, which cost more than the work
itself. So the sender's thread gives up the loop when nothing is left to send and a caller has
wanted it. A caller that begins to wait for an outcome then takes the loop and runs the sender. It
gives the loop up when its own outcome is there (the leader/followers pattern, without promotion).
While other records are being sent as well, the sender's thread keeps the loop.
"""

from __future__ import annotations

import copy
import sys
import threading
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from typing import Protocol

from kprod.errors import IllegalStateError, KprodError, KprodTimeoutError
from kprod.latch import Latch
from kprod.lock import Lock
from kprod.quantities import in_seconds
from kprod.sender.deadlines import FOREVER, Pending
from kprod.sender.network import Network
from kprod.sender.partitions import PartitionSet
from kprod.sender.requests import MetadataQuery, MetadataRequests
from kprod.sender.transactions import Transactions
from kprod.types import Persisted
from kprod.wire.control import MetadataReply
from kprod.wire.versions import ApiVersions
from kprod_ext import Poller, generation, hold_signals, raised_by_signal
from kprod_ext.batch import ProducerBatch

IDLE_BEFORE_RESUME = 0.005
"""The sender's thread takes the loop again when no caller has run it for this many seconds."""
TICK = 0.001
"""Seconds. While no caller runs the loop, the resting thread checks this often whether a caller has
set a time for it."""
LEAST = 0.0005
"""Minimum seconds from a ``send`` until the resting thread takes the loop, so that the caller can
begin to wait and take it first."""
MIN_STACK_HEADROOM = 200
"""Frames of the caller's stack that one iteration and its logging may need."""


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

    It runs in the thread that owns the loop (see ``LoopOwner``). A simulation calls ``run_once``
    itself.
    """

    def __init__(
        self,
        partitions: PartitionSet,
        metadata_requests: MetadataRequests,
        loop_owner: LoopOwner,
        *,
        transactions: Transactions | None = None,
    ) -> None:
        self.transactions = transactions
        self._companion: Companion | None = None
        self.loop_owner = loop_owner
        self._calls: set[Purge | MetadataQuery] = set()  # of any thread, until they have ended
        self._takes_no_calls: KprodError | None = None  # why they end at once
        self.partitions = partitions
        self.deadlines = partitions.deadlines
        self.accumulator = partitions.accumulator
        self.metadata = partitions.metadata
        self.network = partitions.network
        self.clock = partitions.network.clock
        self._metadata_requests = metadata_requests
        self.identity = partitions.identity
        self.broken_by: BaseException | None = None  # the exception that ended the last iteration
        self._ended_by: KprodError | None = None  # the error that callers get because of it
        self.disowned = 0  # records that ``disown`` has ended; no metric has them
        self._sends_no_more = False  # nothing is queued, and never will be
        self._had_finished = False  # before the iteration, while the producer closes

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
            more = self.partitions.send(now)
            refusal = self._ended_by or self.identity.fatal
            if refusal is not None:
                self._end(self.partitions.withdraw(now, in_flight=False), refusal, now)
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
                or (owner.recalled and self.finished and not self._had_finished)
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
            left = self.partitions.withdraw(now, queued=queued, in_flight=in_flight)
            self._end(left, reason, now)
            self._calls.discard(purge)
            purge.end()

        purge = Purge(end_records)
        self._begin(purge)
        return purge.ended

    def _begin(self, call: Purge | MetadataQuery) -> None:
        self._calls.add(call)
        if self._takes_no_calls is not None:  # last: who sets it ends the calls after that
            call.end(copy.copy(self._takes_no_calls))
        self.deadlines.queued.append(call)
        self.loop_owner.wake()

    def fetch_metadata(self, topics: Sequence[str] | None, timeout: float) -> MetadataReply:
        """Ask a broker about ``topics``; None means all. The snapshot does not change. Any thread.

        Waits at most ``timeout`` seconds. Does not check the error codes in the reply. Raises
        KprodTimeoutError, the error of the request, and ProducerClosedError if the producer ends.
        """
        query = MetadataQuery(topics, self._metadata_requests)
        self._begin(query)
        try:
            query.ended.wait(timeout)
        finally:
            self._calls.discard(query)
            query.end()  # nobody asks for it any more
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
        """True if the producer can end. It is called before each iteration until then."""
        self._had_finished = self.finished
        return self._had_finished and (self._companion is None or self._companion.leave(now))

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
        with ExitStack() as later:  # the last one first, even if another one raises
            later.callback(self.network.close)
            later.callback(self._end_waits, error)
            # Before the connections end, which look at which batches have their outcome.
            later.callback(self.disown, error)
            callbacks = self.accumulator.callbacks
            if callbacks.hold_up():
                later.callback(callbacks.go_on)
            now = self.clock.monotonic()
            left = self.partitions.withdraw(now)
            self._sends_no_more = True  # last: no batch will get on the wire from here on
            self._end(left, error, now)

    def _end(self, batches: list[ProducerBatch], error: KprodError, now: float) -> None:
        for batch in batches:
            batch.partition.end(batch, error, now)

    def _end_waits(self, error: KprodError) -> None:
        """End the calls that wait for something other than records."""
        self._takes_no_calls = error
        for call in self._calls.copy():
            call.end(copy.copy(error))  # each is raised in a thread of its own
        if self.transactions is not None:
            self.transactions.end(error)
        self.identity.settled.open()
        if self._companion is not None:
            self._companion.end()

    def disown(self, error: KprodError) -> None:
        """End every record without an outcome with ``error``, even while the sender is busy.

        Any thread. The sender frees the memory when it continues. No metric counts these records.
        """
        never_left, maybe = copy.copy(error), copy.copy(error)  # later calls raise ``error``
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


class LoopOwner:
    """One thread owns the loop at a time. The headings say which threads may call a method.

    ``work`` is set before any thread owns the loop. ``wanted`` is True if a caller would have taken
    the loop, but another thread had it.

    At the beginning of an iteration, the sender sets ``asked`` to False: the iteration may miss
    work that comes later. Before it waits for the network, it sets ``next_check`` to the end of the
    wait; until then ``next_check`` is infinite. ``awaited`` is what the caller that owns the loop
    waits for. If an iteration opens it, for example because a transaction is fenced, the iteration
    does not wait for the network. Neither does the iteration that ends the last record once the
    loop was ``recalled``: the producer closes, and its thread owns the loop from then on.
    """

    def __init__(self, network: Network) -> None:
        self.work: Sender | None = None
        self.wanted = False
        self._network = network
        self._clock = network.clock
        self._lock = threading.Lock()  # held by the owner
        self._owner = 0  # its ident
        self._free = False  # the thread rests, or is about to, and no thread owns the loop
        self.asked = False  # to check again
        self.recalled = False  # the producer closes: the thread owns the loop from now on
        self._stop_lock = Lock()  # guards changing _stop_at
        self._stop_at = FOREVER
        self._process = generation()  # in another one, a forked child, nobody owns the loop
        self.next_check = FOREVER  # of the monotonic clock
        self._wakeup = Poller()  # of the thread, when it rests
        self._woken = False  # since the rest began
        self._worked = False  # callers ran the loop since the thread last checked
        self._due = FOREVER  # of the monotonic clock: when the thread has to check
        self.awaited: Latch | None = None

    # Any thread -----------------------------------------------------------------------------------

    @property
    def is_owner(self) -> bool:
        """True in the thread that owns the loop, including in code that the sender calls."""
        return self._owner == threading.get_ident()

    def wake(self) -> None:
        """Make the sender look at once."""
        # First this, then a look at the owner. An owner that ends does it the other way round.
        self.asked = True
        if self._free:
            self._wake_thread()
        else:
            self._network.wake()

    def about_to_wait(self) -> None:
        """Call ``wake``, unless the following call of ``wait`` runs the loop or wakes its owner."""
        if not self._may_own():
            self.wake()

    def wake_within(self, seconds: float) -> None:
        """Make the sender look within ``seconds``, or some milliseconds after that if it rests."""
        if self._free:
            # No wake-up: the caller that has sent may be about to wait, and to run.
            due = self._clock.monotonic() + (seconds if seconds > LEAST else LEAST)
            if due < self._due:
                self._due = due
        elif self._clock.monotonic() + seconds < self.next_check:
            self._network.wake()

    def wait(self, ended: Latch, timeout: float | None, expedite: bool) -> bool:
        """Wait at most ``timeout`` seconds (None: no limit) for ``ended``; True if it is open.

        If nobody runs the loop, the caller runs it meanwhile. Otherwise, ``expedite`` makes the
        sender check at once. Raises IllegalStateError within an iteration and in a forked child.
        Exceptions of signal handlers propagate.
        """
        if ended.is_open:
            return True
        if self._process != generation():
            raise IllegalStateError(
                "the process was forked after this was asked for: only the parent hears of the"
                " outcome; send the record in this process to wait for it here"
            )
        if self._owner == threading.get_ident() and timeout != 0:
            raise IllegalStateError("waiting inside the sender's work would wait for itself")
        deadline = FOREVER if timeout is None else self._clock.monotonic() + timeout
        if self._may_own() and hold_signals(self._own_and_run, ended, deadline):
            return True
        self.wanted = True
        if expedite:
            self.wake()
        return ended.wait(None if timeout is None else max(0.0, deadline - self._clock.monotonic()))

    def recall(self, deadline: float) -> None:
        """Give the loop back to the sender's thread for ever.

        ``run`` returns when the sender is ready to close, or at ``deadline``.
        """
        with self._stop_lock:
            self._stop_at = min(self._stop_at, deadline)
        self.recalled = True
        self.wake()

    # In the place of the thread -------------------------------------------------------------------

    def _may_own(self) -> bool:
        if not self._free or self.recalled or not self._network.interruptible:
            return False
        try:  # a RecursionError in the midst of an iteration would leave it half done
            sys._getframe(sys.getrecursionlimit() - MIN_STACK_HEADROOM)
        except ValueError:
            return True
        return False

    def _own_and_run(self, ended: Latch, deadline: float) -> bool:
        """Run the loop until ``ended`` is open. Signals are delayed, except during ``poll``."""
        work, network = self.work, self._network
        if work is None or not self._lock.acquire(blocking=False):
            return False
        if work.broken_by is not None:  # the thread is awake, and about to end the producer
            self._lock.release()
            return False
        self._free, self._owner, self._due = False, threading.get_ident(), FOREVER
        network.may_connect = False
        self.awaited = ended
        try:
            while not (ended.is_open or self.recalled or network.connect_requested):
                left = deadline - self._clock.monotonic()
                if left <= 0:
                    break
                work.run_once(left)
        except Exception as error:
            if raised_by_signal(error):
                raise
            # Else the thread ends the producer.
        finally:
            self.awaited = None
            to_do = network.connect_requested or self.recalled or work.broken_by is not None
            network.may_connect = True
            if network.connect_requested:
                network.let_connect()
            self._owner, self._worked, self._free = 0, True, True
            self._lock.release()
            # Last: from here on no thread owns the loop, so later requests wake the thread.
            if to_do or self.asked or not work.finished:
                self._wake_thread()
        return ended.is_open

    def _wake_thread(self) -> None:
        self._woken = True
        self._wakeup.wake()

    # The sender's thread --------------------------------------------------------------------------

    def run(self, sender: Sender) -> None:
        """Run the loop, in turn with callers, until an iteration raises, or after ``recall``."""
        while self._work(sender):
            self.rest()

    def _work(self, sender: Sender) -> bool:
        """Run the loop until a waiting caller can run it. False if the thread must end."""
        self.take()
        try:
            while not self._over(sender):
                sender.run_once(self._stop_at - self._clock.monotonic())
                if self.wanted and sender.finished:
                    return True
        finally:
            self.give_up()
        return False

    def _over(self, sender: Sender) -> bool:
        if sender.broken_by is not None:  # in this thread or in that of a caller
            return True
        if self._stop_at == FOREVER:
            return False
        now = self._clock.monotonic()
        return now >= self._stop_at or sender.ready_to_close(now)

    def take(self) -> None:
        """Take the loop when it is free."""
        self._lock.acquire()
        self._free, self._owner = False, threading.get_ident()

    def give_up(self) -> None:
        """Let callers take the loop, until the next ``take``."""
        self._owner, self._free = 0, True
        self._lock.release()

    def rest(self) -> None:
        """Wait, without the loop, until there is something to do, or no caller runs the loop."""
        if self.asked or self.recalled:
            return
        now = quiet_since = self._clock.monotonic()
        while not self._woken:
            if self._worked or not self._free:
                self._worked = False
                quiet_since = now
            left = min(self._due, quiet_since + IDLE_BEFORE_RESUME) - now
            if left <= 0.0:
                break
            # A caller that runs the loop most likely runs it again for its next record.
            self._wakeup.wait(TICK if self._free and left > TICK else left)
            now = self._clock.monotonic()
        # Else the time to look has come, or callers leave the loop to the thread.
        self.wanted = self._woken and self.wanted
        self._woken, self._due = False, FOREVER

    def close(self) -> None:
        """The sender's thread does not rest any more."""
        self._wakeup.close()
