"""The sender's turn, and the thread that repeats it."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable

from kprod.buffer.accumulator import RecordAccumulator
from kprod.clock import Clock
from kprod.cluster.metadata import Metadata
from kprod.errors import KprodError, ProducerClosedError
from kprod.sender.network import Network
from kprod.sender.rounds.identity import IdentityRound
from kprod.sender.rounds.metadata import MetadataRound
from kprod.sender.rounds.produce import ProduceRound

log = logging.getLogger(__name__)

FOREVER = float("inf")
AFTER_A_BUG = 0.1
JOIN_GRACE = 0.05


class Sender:
    """One turn at a time: ask for what is due, send what is ready, wait, settle what came back.

    Thread: whichever drives it, one at a time. ``SenderThread`` does so in the background; a
    simulation may call ``turn`` itself.
    """

    def __init__(
        self,
        accumulator: RecordAccumulator,
        metadata: Metadata,
        network: Network,
        metadata_round: MetadataRound,
        identity_round: IdentityRound,
        produce_round: ProduceRound,
        clock: Clock,
    ) -> None:
        self.accumulator = accumulator
        self.metadata = metadata
        self.network = network
        self.clock = clock
        self._metadata_round = metadata_round
        self._identity_round = identity_round
        self._produce_round = produce_round

    def turn(self, longest: float = FOREVER) -> None:
        """One round of everything; waits at most ``longest`` seconds for the network."""
        now = self.clock.monotonic()
        self._metadata_round.run(now)  # first, or a busy connection would never have room for it
        wait = min(
            self._identity_round.run(now),
            self._produce_round.run(now),
            # Again: a partition without a leader, or a connection that failed, made it due.
            self._metadata_round.run(now),
            self.network.next_event(now),
            longest,
        )
        if self._identity_round.fatal is not None:
            self._produce_round.fail_queued(self._identity_round.fatal, now)
        self.network.poll(max(0.0, wait))

    @property
    def finished(self) -> bool:
        """True when every record has its outcome."""
        return len(self.accumulator.incomplete) == 0

    def abort(self, error: KprodError) -> None:
        """End every record without an outcome in ``error``, and every connection."""
        now = self.clock.monotonic()
        self._produce_round.abort(error, now)
        self.network.close()


class SenderThread:
    """Repeats the sender's turn until it is told to stop. ``wake`` and ``stop`` from any thread.

    ``ended`` is called once, in the thread, when every record has its outcome and none follows.
    """

    def __init__(self, sender: Sender, name: str, ended: Callable[[], None] | None = None) -> None:
        self._sender = sender
        self._ended = ended
        self._stop_at: float | None = None
        self._pause = threading.Event()  # never set
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    @property
    def is_current(self) -> bool:
        """True in the sender's own thread, where delivery callbacks run."""
        return threading.current_thread() is self._thread

    def request_stop(self, deadline: float) -> None:
        """Ask the thread to end once everything has its outcome, at the latest at ``deadline``."""
        self._stop_at = deadline if self._stop_at is None else min(self._stop_at, deadline)
        self._sender.network.wake()

    def stop(self, deadline: float) -> bool:
        """Send what is queued until ``deadline``, then end the rest; True when it has ended."""
        self.request_stop(deadline)
        left = max(0.0, deadline - self._sender.clock.monotonic())
        self._thread.join(min(left, threading.TIMEOUT_MAX - 1) + JOIN_GRACE)
        return not self._thread.is_alive()

    def _run(self) -> None:
        sender = self._sender
        try:
            while not self._over():
                self._turn_safely()
        finally:
            sender.abort(
                ProducerClosedError("the producer was closed before the record was acknowledged")
            )
            if self._ended is not None:
                self._ended()

    def _over(self) -> bool:
        if self._stop_at is None:
            return False
        return self._sender.finished or self._sender.clock.monotonic() >= self._stop_at

    def _turn_safely(self) -> None:
        # A bug in one turn must not leave futures without an outcome for ever: it is logged, and
        # the delivery timeout still ends whatever it harmed.
        stop_at = self._stop_at
        longest = FOREVER if stop_at is None else stop_at - self._sender.clock.monotonic()
        try:
            self._sender.turn(longest)
        except Exception:
            log.exception("a turn of the sender failed; it goes on")
            self._pause.wait(AFTER_A_BUG)  # not network.poll: that may be what fails
