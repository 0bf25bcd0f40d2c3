"""The owner of the sender's loop: its own thread, or a caller that waits for an outcome anyway.

A lone ``send(...).get()`` would need two switches between threads, which cost more than the work
itself. So the sender's thread gives up the loop when it has nothing to do. A caller that begins to
wait for an outcome then takes the loop and runs the sender. It gives the loop up when its own
outcome is there (the leader/followers pattern, without promotion). While other records are being
sent as well, the sender's thread keeps the loop.
"""

from __future__ import annotations

import sys
import threading
from typing import TYPE_CHECKING

from kprod.clock import Clock
from kprod.errors import IllegalStateError
from kprod.latch import Latch
from kprod.sender.network import Network
from kprod_ext import Poller, generation, hold_signals, raised_by_signal

if TYPE_CHECKING:
    from kprod.sender.loop import Sender

FOREVER = float("inf")
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


class LoopOwner:
    """One thread owns the loop at a time. The headings say which threads may call a method.

    ``work`` is set before any thread owns the loop. ``wanted`` is True if a caller would have taken
    the loop, but another thread had it.

    At the beginning of an iteration, the sender sets ``asked`` to False: the iteration may miss
    work that comes later. Before it waits for the network, it sets ``next_check`` to the end of the
    wait; until then ``next_check`` is infinite. ``awaited`` is what the caller that owns the loop
    waits for. If an iteration opens it, for example because a transaction is fenced, the iteration
    does not wait for the network.
    """

    def __init__(self, network: Network, clock: Clock) -> None:
        self.work: Sender | None = None
        self.wanted = False
        self._network = network
        self._clock = clock
        self._lock = threading.Lock()  # held by the owner
        self._owner = 0  # its ident
        self._free = False  # the thread rests, or is about to, and no thread owns the loop
        self.asked = False  # to look anew
        self._recalled = False  # the producer closes: the thread owns the loop from now on
        self._process = generation()  # in another one, a forked child, nobody owns the loop
        self.next_check = FOREVER  # of the monotonic clock
        self._wakeup = Poller()  # of the thread, when it rests
        self._woken = False  # since the rest began
        self._worked = False  # callers ran the loop since the thread looked last
        self._due = FOREVER  # of the monotonic clock: when the thread has to look
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
        """Call ``wake``, unless the following call of ``wait`` will run the loop itself."""
        if not self._may_own():
            self.wake()

    def look_within(self, seconds: float) -> None:
        """Make the sender look within ``seconds``, or some milliseconds after that if it rests."""
        if self._free:
            # No wake-up: the caller that has sent may be about to wait, and to run.
            due = self._clock.monotonic() + (seconds if seconds > LEAST else LEAST)
            if due < self._due:
                self._due = due
        elif self._clock.monotonic() + seconds < self.next_check:
            self._network.wake()

    def wait(self, ended: Latch, timeout: float | None, hurry: bool) -> bool:
        """Wait at most ``timeout`` seconds (None: no limit) for ``ended``; True if it is open.

        If nobody runs the loop, the caller runs it meanwhile. Otherwise, ``hurry`` makes the sender
        look at once. Raises IllegalStateError within an iteration and in a forked child. Exceptions
        of signal handlers propagate.
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
        if hurry:
            self.wake()
        return ended.wait(None if timeout is None else max(0.0, deadline - self._clock.monotonic()))

    def recall(self) -> None:
        """Give the loop back to the sender's thread for ever."""
        self._recalled = True
        self.wake()

    # In the place of the thread -------------------------------------------------------------------

    def _may_own(self) -> bool:
        if not self._free or self._recalled or not self._network.interruptible:
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
            while not (ended.is_open or self._recalled or network.connect_requested):
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
            to_do = network.connect_requested or self._recalled or work.broken_by is not None
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
        if self.asked or self._recalled:
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
