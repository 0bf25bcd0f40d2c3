"""The thread that runs the sender: its own, or a caller that waits for an outcome anyway.

A lone ``send(...).get()`` would pay for two changes of thread, there and back, which cost more than
the work itself. So the sender's thread gives up the lead when it has nothing to do. A caller that
begins to wait for an outcome then takes the lead, runs the sender, and gives the lead up again when
its own outcome is there (the leader/followers pattern, with one leader and no promotion). While
more is under way than one caller waits for, the thread keeps the lead, as other records need it.
"""

from __future__ import annotations

import sys
import threading
from typing import Protocol

from kprod.clock import Clock
from kprod.errors import IllegalStateError
from kprod.latch import Latch
from kprod.sender.network import Network
from kprod_ext import Poller, hold_signals, raised_by_signal

FOREVER = float("inf")
PATIENCE = 0.005
"""Seconds without a caller that leads, after which the thread takes the lead again."""
TICK = 0.001
"""Seconds after which the resting thread sees that a caller has set a time for it."""
LEAST = 0.0005
"""Seconds that a caller has at least, after it has sent, to begin to wait and take the turns."""
DEEP = 200
"""Frames that one run and the logging within it may need of the caller's stack."""


class Work(Protocol):
    """The work of the leader: the sender."""

    def run_once(self, longest: float) -> None:
        """See ``Sender.run_once``."""
        ...

    @property
    def finished(self) -> bool:
        """True when every record has its outcome."""
        ...

    @property
    def broken_by(self) -> BaseException | None:
        """The exception that broke off the last turn."""
        ...


class SenderLeadership:
    """One thread leads at a time; the headings say which threads may call a method.

    ``work`` is set before any thread leads; ``wanted`` is True when a caller would have led, had no
    other thread done so.
    """

    def __init__(self, network: Network, clock: Clock) -> None:
        self.work: Work | None = None
        self.wanted = False
        self._network = network
        self._clock = clock
        self._lock = threading.Lock()  # held by the leader
        self._leader = 0  # its ident
        self._free = False  # the thread rests, or is about to, and no thread leads
        self._asked = False  # to look anew, since the last run began
        self._recalled = False  # the producer closes: only the thread leads from now on
        self._abandoned = False  # in a forked child: nobody leads here
        self._looks_again_at = FOREVER  # of the monotonic clock; infinite during a look
        self._wakeup = Poller()  # of the thread, when it rests
        self._woken = False  # since the rest began
        self._worked = False  # callers took turns since the thread looked last
        self._due = FOREVER  # of the monotonic clock: when the thread has to look
        self._told: Latch | None = None  # a caller leads until this is open

    # Any thread -----------------------------------------------------------------------------------

    @property
    def is_leader(self) -> bool:
        """True in the thread that leads, also in code that the sender calls."""
        return self._leader == threading.get_ident()

    def wake(self) -> None:
        """Let the sender look at once."""
        # First this, then a look at the leader. A leader that ends does it the other way round.
        self._asked = True
        if self._free:
            self._wake_thread()
        else:
            self._network.wake()

    def about_to_wait(self) -> None:
        """As ``wake``, unless ``wait``, which follows, takes the next turn itself."""
        if not self._may_lead():
            self.wake()

    def look_within(self, seconds: float) -> None:
        """Let the sender look within ``seconds``; while it rests, some milliseconds later."""
        if self._free:
            # No wake-up: the caller that has sent may be about to wait, and to lead.
            self._due = min(self._due, self._clock.monotonic() + max(seconds, LEAST))
        elif self._clock.monotonic() + seconds < self._looks_again_at:
            self._network.wake()

    def wait(self, told: Latch, timeout: float | None, hurry: bool) -> bool:
        """Wait at most ``timeout`` seconds (None: without limit) until ``told`` is open.

        Takes turns meanwhile if nobody else does; else, with ``hurry``, lets the sender look.
        Raises IllegalStateError within a turn and in a forked child, and what signal handlers
        raise.
        """
        if told.is_open:
            return True
        if self._abandoned:
            raise IllegalStateError(
                "the process was forked after this was asked for: only the parent hears of the"
                " outcome; send the record in this process to wait for it here"
            )
        if self.is_leader and timeout != 0:
            raise IllegalStateError("waiting inside the sender's work would wait for itself")
        deadline = FOREVER if timeout is None else self._clock.monotonic() + timeout
        if self._may_lead() and hold_signals(self._lead, told, deadline):
            return True
        self.wanted = True
        if hurry:
            self.wake()
        return told.wait(None if timeout is None else max(0.0, deadline - self._clock.monotonic()))

    def recall(self) -> None:
        """Give the lead back to the thread, for good."""
        self._recalled = True
        self.wake()

    def abandon(self) -> None:
        """In a forked child: no thread takes turns, for the connections are those of the parent."""
        self._abandoned = self._recalled = True
        self._free = False
        self._wakeup.abandon()

    # Leading in the place of the thread -----------------------------------------------------------

    def _may_lead(self) -> bool:
        if not self._free or self._recalled or not self._network.interruptible:
            return False
        deep = True  # a RecursionError in the midst of a turn would leave it half done
        try:
            sys._getframe(sys.getrecursionlimit() - DEEP)
        except ValueError:
            deep = False
        return not deep

    def _lead(self, told: Latch, deadline: float) -> bool:
        """Take turns until ``told`` is open. Signals are held: they are let in by ``poll`` only."""
        me = threading.get_ident()  # first, it may find no memory
        if self.work is None or not self._lock.acquire(blocking=False):
            return False
        if self.work.broken_by is not None:  # the thread is awake, and about to end the producer
            self._lock.release()
            return False
        self._free, self._leader, self._due = False, me, FOREVER
        self._network.may_connect = False
        self._told = told
        try:
            self._run(self.work, told, deadline)
        finally:
            self._told = None
            self._stop_leading(self.work)
        return told.is_open

    def _run(self, work: Work, told: Latch, deadline: float) -> None:
        network = self._network
        left = deadline - self._clock.monotonic()
        while not (told.is_open or self._recalled or network.wants_to_connect) and left > 0:
            try:
                work.run_once(left)
            except Exception as error:
                if raised_by_signal(error):
                    raise
                return  # the thread ends the producer
            left = deadline - self._clock.monotonic()

    def _stop_leading(self, work: Work) -> None:
        network = self._network
        to_do = network.wants_to_connect or self._recalled or work.broken_by is not None
        network.may_connect, network.wants_to_connect = True, False
        self._leader, self._worked, self._free = 0, True, True
        self._lock.release()
        # Last: from here on no thread leads, so later requests of callers wake the thread.
        if to_do or self._asked or not work.finished:
            self._wake_thread()

    def _wake_thread(self) -> None:
        self._woken = True
        self._wakeup.wake()

    # The leader -----------------------------------------------------------------------------------

    def looks(self) -> None:
        """A turn begins to look for work. It may miss work that comes from now on."""
        self._asked = False
        self._looks_again_at = FOREVER

    def looks_again_at(self, when: float) -> None:
        """The turn has looked, and waits."""
        self._looks_again_at = when

    @property
    def served(self) -> bool:
        """True when the leading caller has its outcome: then the turn must not wait, either.

        A turn may end records before it waits for the network, as when a transaction is fenced.
        """
        return self._told is not None and self._told.is_open

    # The sender's thread --------------------------------------------------------------------------

    def take(self) -> None:
        """Take the lead, after a caller has given it up. Returns at once in the leading thread."""
        me = threading.get_ident()  # first, it may find no memory
        if self._leader == me:  # there was no memory to call ``give_up``
            return
        self._lock.acquire()
        self._free, self._leader = False, me

    def give_up(self) -> None:
        """Let callers lead, until the next ``take``."""
        self._leader, self._free = 0, True
        self._lock.release()

    def rest(self) -> None:
        """Rest, the lead given up, until there is something to do or no caller leads."""
        if not (self._asked or self._recalled):
            self.wanted = self._rest() and self.wanted

    def _rest(self) -> bool:
        """False when the time to look has come, or when callers leave the turns to the thread."""
        now = quiet_since = self._clock.monotonic()
        while not self._woken:
            if self._worked or not self._free:
                self._worked = False
                quiet_since = now
            left = min(self._due, quiet_since + PATIENCE) - now
            if left <= 0.0:
                break
            self._wakeup.wait(min(left, TICK))
            now = self._clock.monotonic()
        woken = self._woken
        self._woken, self._due = False, FOREVER
        return woken

    def ended(self) -> None:
        """The thread does not rest any more."""
        self._wakeup.close()
