"""Whose turn it is to take the sender's turns: its thread's, or a caller's that waits anyway.

A lone ``send(...).get()`` would pay for two changes of thread, there and back, which cost more than
the work itself. So the thread that has nothing to do lays the baton down and rests beside it, and
whoever begins to wait for an outcome takes it up, takes the turns, and lays it down again when its
own outcome is there (the leader/followers pattern, with one leader and no promotion). While more is
under way than one caller waits for, the thread keeps the baton, as the others' records need it.
"""

from __future__ import annotations

import sys
import threading
from typing import Protocol

from kprod.clock import Clock
from kprod.errors import IllegalStateError
from kprod.latch import Latch
from kprod.sender.network import Network
from kprod_ext import Rest, hold_signals, raised_by_signal

FOREVER = float("inf")
PATIENCE = 0.005
"""Seconds without a caller that takes turns after which the thread takes the baton up again."""
DEEP = 200
"""Frames that a turn and the logging within it may need of the caller's stack."""


class Work(Protocol):
    """What the holder of the baton does."""

    def turn(self, longest: float) -> None:
        """See ``Sender.turn``."""
        ...

    @property
    def finished(self) -> bool:
        """True when every record has its outcome."""
        ...


class Baton:
    """Held by one thread at a time; every method says by whom it may be called.

    ``work`` is set before anyone may take turns; ``wanted`` is True when a caller would have taken
    the baton, had it not been held.
    """

    def __init__(self, network: Network, clock: Clock) -> None:
        self.work: Work | None = None
        self.wanted = False
        self._network = network
        self._clock = clock
        self._lock = threading.Lock()  # held by whoever takes turns
        self._holder = 0  # its ident
        self._free = False  # the thread rests, or is about to, and nobody holds the baton
        self._asked = False  # to look anew, since the last turn began
        self._recalled = False  # the producer closes: only the thread takes turns from now on
        self._looks_again_at = FOREVER  # of the monotonic clock; infinite during a look
        self._rest = Rest()

    # Any thread -----------------------------------------------------------------------------------

    @property
    def is_mine(self) -> bool:
        """True in the thread that takes turns, for whatever these call."""
        return self._holder == threading.get_ident()

    def wake(self) -> None:
        """Let the sender look at once."""
        # First this, then who holds it; laid down, the baton is looked at in the opposite order.
        self._asked = True
        if self._free:
            self._rest.ring()
        else:
            self._network.wake()

    def about_to_wait(self) -> None:
        """As ``wake``, unless ``wait``, which follows, takes the next turn itself."""
        if not self._may_take_turns():
            self.wake()

    def look_within(self, seconds: float) -> None:
        """Let the sender look in ``seconds`` or before; when it rests, some milliseconds later."""
        if self._free:
            # Nobody is woken: whoever has sent may be about to wait, and to take the turns itself.
            self._rest.look_within(seconds)
        elif self._clock.monotonic() + seconds < self._looks_again_at:
            self._network.wake()

    def wait(self, told: Latch, timeout: float | None, hurry: bool) -> bool:
        """Wait at most ``timeout`` seconds (None: without limit) until ``told`` is open.

        Takes turns meanwhile if nobody else does; else, with ``hurry``, lets the sender look.
        Raises IllegalStateError within a turn, and what signal handlers raise.
        """
        if told.is_open:
            return True
        if self.is_mine and timeout != 0:
            raise IllegalStateError("waiting inside the sender's work would wait for itself")
        deadline = FOREVER if timeout is None else self._clock.monotonic() + timeout
        if self._may_take_turns() and hold_signals(self._take_turns, told, deadline):
            return True
        self.wanted = True
        if hurry:
            self.wake()
        return told.wait(None if timeout is None else max(0.0, deadline - self._clock.monotonic()))

    def recall(self) -> None:
        """The thread shall have the baton back, for good."""
        self._recalled = True
        self.wake()

    def abandon(self) -> None:
        """In a forked child: nobody takes turns, for the connections are those of the parent."""
        self._recalled, self._free = True, False
        self._rest.abandon()

    # Taking turns in the place of the thread ------------------------------------------------------

    def _may_take_turns(self) -> bool:
        if not self._free or self._recalled or not self._network.interruptible:
            return False
        deep = True  # a RecursionError in the midst of a turn would leave it half done
        try:
            sys._getframe(sys.getrecursionlimit() - DEEP)
        except ValueError:
            deep = False
        return not deep

    def _take_turns(self, told: Latch, deadline: float) -> bool:
        """Take turns until ``told`` is open. Signals are held: they are let in by ``poll`` only."""
        me = threading.get_ident()  # first, it may find no memory
        if self.work is None or not self._lock.acquire(blocking=False):
            return False
        self._rest.work_begins()
        self._free, self._holder = False, me
        self._network.may_connect = False
        try:
            self._turns(self.work, told, deadline)
        finally:
            self._lay_down(self.work)
        return told.is_open

    def _turns(self, work: Work, told: Latch, deadline: float) -> None:
        network = self._network
        left = deadline - self._clock.monotonic()
        while not (told.is_open or self._recalled or network.wants_to_connect) and left > 0:
            try:
                work.turn(left)
            except Exception as error:
                if raised_by_signal(error):
                    raise
                what = "a turn of the sender failed; its thread goes on"
                network.troubles.mistake(what, error, self._clock.monotonic())
                left = 0.0
            else:
                left = deadline - self._clock.monotonic()

    def _lay_down(self, work: Work) -> None:
        network = self._network
        to_do = network.wants_to_connect or self._recalled
        network.may_connect, network.wants_to_connect = True, False
        self._holder, self._free = 0, True
        self._lock.release()
        self._rest.work_ends()
        # Only now: what is asked for from here on rings by itself, as the baton is free.
        if to_do or self._asked or not work.finished:
            self._rest.ring()

    # Whoever takes turns --------------------------------------------------------------------------

    def looks(self) -> None:
        """A turn begins to look at what there is: what comes now, it may have passed by."""
        self._asked = False
        self._looks_again_at = FOREVER

    def looks_again_at(self, when: float) -> None:
        """The turn has looked, and waits."""
        self._looks_again_at = when

    # The sender's thread --------------------------------------------------------------------------

    def take(self) -> None:
        """Take the baton up; waits for a caller to lay it down."""
        me = threading.get_ident()  # first, it may find no memory
        self._lock.acquire()
        self._free, self._holder = False, me

    def lay_down(self) -> None:
        """Let callers take it, from ``take`` on."""
        self._holder, self._free = 0, True
        self._lock.release()

    def rest(self) -> None:
        """Rest, the baton laid down, until there is something to do or nobody takes turns."""
        if not (self._asked or self._recalled):
            self.wanted = self._rest.rest(PATIENCE) and self.wanted

    def ended(self) -> None:
        """The thread does not rest any more."""
        self._rest.close()
