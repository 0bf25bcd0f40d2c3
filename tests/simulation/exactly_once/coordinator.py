"""The coordinator of one transactional id, by the rules of the embedded broker's.

Its log is replicated perfectly, but for what is being written while the coordinator moves: that may
be in the log of the next one, or not.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

from kprod.broker.transactions import transaction_rules as rules
from kprod.broker.transactions.transaction import PREPARED, Transaction, TransactionState
from kprod.broker.transactions.transaction_rules import ProducerIdentity
from kprod.errors import BrokerError
from kprod.types import TopicPartition
from tests.simulation.events import EventQueue
from tests.simulation.exactly_once.marked_log import ABORT, COMMIT
from tests.simulation.exactly_once.setup import TRANSACTIONAL_ID, Place, TransactionSetup, Who

if TYPE_CHECKING:
    from tests.simulation.exactly_once.markers import Markers

LOADING, NOT_COORDINATOR = 14, 16
BAD_STATE, CONCURRENT, FENCED, ABORTABLE = 48, 51, 90, 120
AGAIN = 0.05

Reply = Callable[[int, Who], None]
"""Takes an error code, and who the producer is from now on."""


class Coordinator:
    """``node``: the broker that coordinates now. ``era`` counts those that have."""

    def __init__(
        self,
        setup: TransactionSetup,
        events: EventQueue,
        rng: random.Random,
        markers: Markers,
    ) -> None:
        self.node = 0
        self.loaded = True
        self.era = 0
        self.level = setup.level
        self._setup = setup
        self._events = events
        self._rng = rng
        self._markers = markers
        self._pending: Transaction | None = None
        self._next_id = 4000
        self._standing = Transaction(TRANSACTIONAL_ID, self._take_id(), setup.coordinated_epoch, 0)

    # Where it is ------------------------------------------------------------------------------

    def absence(self, node: int) -> int:
        """Why that broker cannot answer; 0 if it can."""
        if node != self.node:
            return NOT_COORDINATOR
        return 0 if self.loaded else LOADING

    def move(self, to: int, gap: float) -> None:
        """Another broker takes over; it answers after ``gap`` seconds."""
        self.era += 1
        era = self.era
        if self._pending is not None:
            if self._rng.random() < 0.5:
                self._standing = self._pending
            self._pending = None
        self.node, self.loaded = to, False
        self._events.after(gap, lambda: self._load(era))

    def _load(self, era: int) -> None:
        if era == self.era:
            self.loaded = True
            self._go_on()

    @property
    def _now_ms(self) -> int:
        return int(self._events.now * 1000)

    def _take_id(self) -> int:
        self._next_id += 1
        return self._next_id

    def _write(self, after: Transaction, reply: Reply | None = None, code: int = 0) -> None:
        """Have it in the log, then answer; whoever asks meanwhile is told to wait."""
        era, self._pending = self.era, after

        def written() -> None:
            if era != self.era:
                if reply is not None:
                    reply(NOT_COORDINATOR, Who())
                return
            self._pending, self._standing = None, after
            if reply is not None:
                reply(code, Who(*rules.identity_after(after)))
            self._go_on()

        self._events.after(self._setup.replication, written)

    def _go_on(self) -> None:
        """What follows from what was written, or read."""
        now, era = self._standing, self.era
        if now.state in PREPARED:
            self._send_markers(now)
        elif now.is_open:
            self._events.after(now.timeout_ms / 1000, lambda: self._time_out(era))

    # The end of a transaction -----------------------------------------------------------------

    def _send_markers(self, now: Transaction) -> None:
        left, era = set(now.partitions), self.era
        kind = COMMIT if now.state is TransactionState.PREPARE_COMMIT else ABORT
        who = Who(now.producer_id, now.producer_epoch)

        def done(place: TopicPartition) -> None:
            left.discard(place)
            if not left and era == self.era and self._standing is now and not self._pending:
                self._write(rules.complete(now, self._now_ms))

        for place in sorted(now.partitions):
            self._markers.mark(place, who, kind, era, lambda at=place: done(at))  # type: ignore[misc]
        if not left:
            self._write(rules.complete(now, self._now_ms))

    def _time_out(self, era: int) -> None:
        now = self._standing
        if era != self.era or not now.is_open or now.deadline_ms > self._now_ms:
            return
        if self._pending is not None:
            self._events.after(AGAIN, lambda: self._time_out(era))
        else:
            self._decide(self.node, self._fenced)

    def _fenced(self, now: Transaction) -> Transaction:
        """Aborted in an epoch that nobody is told."""
        return rules.fence(now, self.level, self._now_ms)

    # What is asked ----------------------------------------------------------------------------

    def _decide(
        self,
        node: int,
        change: Callable[[Transaction], Transaction],
        reply: Reply | None = None,
        code: int = 0,
    ) -> None:
        """Before anything else: a producer may go on under an id that is only about to be its."""
        now, refused = self._standing, self.absence(node)
        if not refused:
            try:
                after = now if self._pending is not None else change(now)
                if after is not now:
                    self._write(after, reply, code)
                    return
                refused = CONCURRENT if self._pending is not None else 0
            except BrokerError as error:
                refused = error.code
        if reply is not None:
            reply(refused, Who() if refused else Who(*rules.identity_after(now)))

    def initialize(self, node: int, who: Who, timeout: float, reply: Reply) -> None:
        """Give an id and epoch; what is open is aborted first."""
        present = None if who.producer_id < 0 else ProducerIdentity(*who)

        def change(now: Transaction) -> Transaction:
            if now.is_open:
                rules.check_present(now, present)
                return self._fenced(now)
            timeout_ms = int(timeout * 1000)
            return rules.initialize(now, timeout_ms, present, self._now_ms, self._take_id)

        self._decide(node, change, reply, CONCURRENT if self._standing.is_open else 0)

    def add(self, node: int, who: Who, places: Iterable[Place], reply: Reply) -> None:
        """Something is about to be written there: the transaction begins, if it has not."""
        added = [TopicPartition(*place) for place in places]

        def change(now: Transaction) -> Transaction:
            return rules.add_partitions(now, ProducerIdentity(*who), added, self._now_ms)

        self._decide(node, change, reply)

    def verify(self, node: int, who: Who, place: Place, reply: Reply) -> None:
        """Is the place part of the open transaction?"""

        def change(now: Transaction) -> Transaction:
            rules.verify(now, ProducerIdentity(*who), TopicPartition(*place))
            return now

        self._decide(node, change, reply)

    def end(self, node: int, who: Who, kind: bytes, implicit: bool, reply: Reply) -> None:
        """Commit or abort; a repeated request is answered as the first one."""

        def change(now: Transaction) -> Transaction:
            return self._ended(now, who, kind, 2 if implicit else 0)

        self._decide(node, change, reply)

    def _ended(self, now: Transaction, who: Who, kind: bytes, version: int) -> Transaction:
        return rules.end(
            now,
            ProducerIdentity(*who),
            kind == COMMIT,
            version,
            self._now_ms,
            self._take_id,
            fences_late_commits=self._setup.fences_late_commits,
        )

    def takes_abort(self, who: Who) -> bool:
        """Whether a producer of protocol 2 may go on, though its transaction was aborted."""
        try:
            return self._ended(self._standing, who, ABORT, 2) is self._standing
        except BrokerError as refused:
            is_ending = self._standing.state is TransactionState.PREPARE_ABORT
            return refused.code == CONCURRENT and is_ending
