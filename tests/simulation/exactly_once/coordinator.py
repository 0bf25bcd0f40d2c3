"""The coordinator of one transactional id: where it is, and when what it has decided counts.

What a request leads to is said by the rules of the embedded broker, after Kafka's
TransactionCoordinator (4.3). The log is replicated perfectly, but for what is being written while
the coordinator moves: that may be in the log of the next one, or not.
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

from kprod.broker.transactions import transaction_rules as rules
from kprod.broker.transactions.transaction import (
    LAST_EPOCH,
    PREPARED,
    Transaction,
    TransactionState,
)
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
ABORTED = (TransactionState.PREPARE_ABORT, TransactionState.COMPLETE_ABORT)
AGAIN = 0.05

Reply = Callable[[int, Who], None]
"""Takes an error code, and who the producer is from now on."""
Rule = Callable[[Transaction, int], Transaction]
"""Takes what the log says and the time: a number for each, by which transactions differ."""


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
        self._ids = itertools.count(4001)
        self._times = itertools.count(1)
        self.standing = Transaction(
            TRANSACTIONAL_ID, self._take_id(), setup.coordinated_epoch, 60_000
        )
        self._setup = setup
        self._events = events
        self._rng = rng
        self._markers = markers
        self._pending: Transaction | None = None

    def _take_id(self) -> int:
        return next(self._ids)

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
                self.standing = self._pending
            self._pending = None
        self.node, self.loaded = to, False
        self._events.after(gap, lambda: self._load(era))

    def _load(self, era: int) -> None:
        if era == self.era:
            self.loaded = True
            self._go_on()

    def _write(self, after: Transaction, reply: Reply | None = None, code: int = 0) -> None:
        """Have it in the log, then answer; whoever asks meanwhile is told to wait."""
        era, self._pending = self.era, after

        def written() -> None:
            if era != self.era:
                if reply is not None:
                    reply(NOT_COORDINATOR, Who())
                return
            self._pending, self.standing = None, after
            if reply is not None:
                reply(code, _who(after))
            self._go_on()

        self._events.after(self._setup.replication, written)

    def _go_on(self) -> None:
        """What follows from what was written, or read."""
        now = self.standing
        if now.state in PREPARED:
            self._send_markers(now)
        elif now.is_open:
            started, era = now.started_ms, self.era
            self._events.after(now.timeout_ms / 1000, lambda: self._time_out(started, era))

    # The end of a transaction -----------------------------------------------------------------

    def _send_markers(self, now: Transaction) -> None:
        left, era = set(now.partitions), self.era
        kind = COMMIT if now.state is TransactionState.PREPARE_COMMIT else ABORT
        who = Who(now.producer_id, now.producer_epoch)

        def done(place: TopicPartition) -> None:
            left.discard(place)
            if not left and era == self.era and self.standing is now and not self._pending:
                self._write(rules.complete(now, next(self._times)))

        for place in sorted(now.partitions):
            self._markers.mark(place, who, kind, era, lambda at=place: done(at))  # type: ignore[misc]
        if not left:
            self._write(rules.complete(now, next(self._times)))

    def _time_out(self, started: int, era: int) -> None:
        now = self.standing
        if era != self.era or now.started_ms != started or not now.is_open:
            return
        if self._pending is not None:
            self._events.after(AGAIN, lambda: self._time_out(started, era))
        elif now.producer_epoch <= LAST_EPOCH:  # else nothing could fence the producer: as Kafka
            self._write(rules.fence(now, self.level, next(self._times)))

    # What is asked ----------------------------------------------------------------------------

    def initialize(self, node: int, present: Who, timeout: float, reply: Reply) -> None:
        """Give an id and epoch; what is open is aborted first."""
        known = None if present.producer_id < 0 else ProducerIdentity(*present)
        fences = self.standing.is_open

        def rule(now: Transaction, time: int) -> Transaction:
            rules.check_present(now, known)
            if fences:
                return rules.fence(now, self.level, time)
            return rules.initialize(now, int(timeout * 1000), known, time, self._take_id)

        self._apply(node, rule, reply, CONCURRENT if fences else 0)

    def add(self, node: int, who: Who, places: Iterable[Place], reply: Reply) -> None:
        """Something is about to be written there: the transaction begins, if it has not."""
        added, identity = [TopicPartition(*place) for place in places], ProducerIdentity(*who)
        self._apply(node, lambda now, time: rules.add_partitions(now, identity, added, time), reply)

    def verify(self, node: int, who: Who, place: Place, reply: Reply) -> None:
        """Is the place part of the open transaction?"""

        def rule(now: Transaction, _: int) -> Transaction:
            rules.verify(now, ProducerIdentity(*who), TopicPartition(*place))
            return now

        self._apply(node, rule, reply)

    def end(self, node: int, who: Who, kind: bytes, implicit: bool, reply: Reply) -> None:
        """Commit or abort; a repeated request is answered as the first one."""

        def rule(now: Transaction, time: int) -> Transaction:
            return rules.end(
                now,
                ProducerIdentity(*who),
                kind == COMMIT,
                2 if implicit else 1,
                time,
                self._take_id,
                fences_late_commits=self._setup.fences_late_commits,
            )

        self._apply(node, rule, reply)

    def _apply(self, node: int, rule: Rule, reply: Reply, code: int = 0) -> None:
        now = self.standing
        refusal = self.absence(node)
        if not refusal and (self._pending is not None or now.state in PREPARED):
            # Before anything else: a producer may go on under an id that is only about to be its.
            refusal = CONCURRENT
        if refusal:
            reply(refusal, Who())
            return
        try:
            after = rule(now, next(self._times))
        except BrokerError as error:
            reply(error.code, Who())
            return
        if after is now:
            reply(code, _who(now))
        else:
            self._write(after, reply, code)

    def takes_abort(self, who: Who) -> bool:
        """Whether a producer of protocol 2 may go on, though its transaction was aborted."""
        now = self.standing
        before = now.producer_id, now.producer_epoch - 1
        if now.producer_epoch == 0:
            before = now.previous_producer_id, LAST_EPOCH
        return now.state in ABORTED and who == before


def _who(now: Transaction) -> Who:
    """Who the producer is once the transaction has ended."""
    return Who(*rules.identity_after(now))
