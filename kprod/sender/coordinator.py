"""Send the due requests to a transaction's coordinators, one at a time (KIP-98, KIP-890)."""

from __future__ import annotations

from functools import partial
from typing import Any

from kprod.clock import ExponentialBackoff
from kprod.cluster.metadata import Metadata
from kprod.errors import BrokerError, KprodError, TransactionAbortedError
from kprod.latch import Latch
from kprod.sender.broker import Broker
from kprod.sender.coordination import Coordination
from kprod.sender.deadlines import Deadlines
from kprod.sender.exchange import ControlRequest
from kprod.sender.network import Network
from kprod.sender.outcomes import Outcomes
from kprod.sender.partitions import PartitionSet
from kprod.sender.transaction_requests import Ask, Coordinator, FindCoordinator, Reaction, reaction
from kprod.sender.transactions import DOOMED, State, Transactions

FOREVER = float("inf")
SOON = 0.02
"""Seconds until something is added again while the transaction before is still being ended."""
MARKERS = 0.0006
"""Seconds that a cluster needs for the markers of a transaction after it has answered EndTxn.

Apache Kafka puts off a request of the next transaction that comes before that by 20 ms (decision
0042)."""
FLUSHING = (State.COMMITTING, State.PREPARED)
ENDING = FLUSHING + DOOMED
PATIENCE = 1.0
"""Seconds for which the metadata may lack a broker that was named as coordinator."""


class CoordinatorRequests:
    """The identity of a transactional producer, and all its requests but Produce and Metadata.

    It looks when it is queued (see ``Deadlines``): by each change of ``Transactions``, and by each
    answer. Thread: the sender's only.
    """

    def __init__(
        self,
        transactions: Transactions,
        coordination: Coordination,
        partitions: PartitionSet,
        outcomes: Outcomes,
        metadata: Metadata,
        network: Network,
        deadlines: Deadlines,
        backoff: ExponentialBackoff,
    ) -> None:
        self._transactions = transactions
        self._deadlines = deadlines
        self.due = FOREVER  # see Deadlines
        transactions.changed = partial(deadlines.queued.append, self)
        self._coordination = coordination
        self.identity = partitions.identity
        self._partitions = partitions
        self._accumulator = partitions.accumulator
        self._outcomes = outcomes
        self._metadata = metadata
        self._network = network
        self._backoff = backoff
        self.settled = Latch()
        self._coordinators: dict[Coordinator, tuple[int, float]] = {}  # node id, known since
        self._in_flight: Ask | None = None
        self._failures = 0  # in a row
        self._retry_at = 0.0
        self._hold_until = 0.0
        self._sealed = 0  # the transaction that takes no more records
        self._flushing = False

    @property
    def fatal(self) -> KprodError | None:
        """The reason why nothing can be sent any more, or None."""
        return self.identity.fatal

    @property
    def busy(self) -> bool:
        """True while a caller waits for a coordinator, or ``close`` for an abort."""
        return self._transactions.under_way

    def fire(self, now: float) -> None:
        """Do what the state asks for: send a question, end a call, or look again later."""
        state = self._transactions.state
        drained = False
        if state in ENDING:
            drained = self._gather(state, now)
        elif self._flushing:
            self._flush(False)
        coordination = self._coordination
        if coordination.holds:
            if now < self._hold_until:
                self._deadlines.set(self, self._hold_until)
                return
            coordination.release_hold()
        if self._in_flight is not None:
            return
        if coordination.settle(drained=drained):
            self._deadlines.queued.append(self)
            return
        ask = coordination.due(drained=drained)
        if ask is not None:
            if now < self._retry_at:
                self._deadlines.set(self, self._retry_at)
            else:
                self._ask(ask, now)

    def _gather(self, state: State, now: float) -> bool:
        """A transaction that ends takes no more records; those in it leave at once, or never.

        True when all have their outcome.
        """
        if self._sealed != self._transactions.number:
            # From here on a record can only be one of the next transaction.
            self._accumulator.close_open_batches()
            self._sealed = self._transactions.number
        if (state in FLUSHING) is not self._flushing:
            self._flush(not self._flushing)
        if state in DOOMED:
            self._drop_queued(now)
        if state is State.ABORTING:
            self._transactions.aborts()
        drained = self._outcomes.drained
        if not drained:
            self._network.waiting[self] = None  # each answer may be the last
        return drained

    def _flush(self, begins: bool) -> None:
        self._flushing = begins
        if begins:
            self._accumulator.begin_flush()
        else:
            self._accumulator.end_flush()

    def _drop_queued(self, now: float) -> None:
        cause = self._transactions.error
        for batch in self._partitions.take_queued(now):
            if batch.maybe_written:
                why = (
                    f"{self._transactions} was aborted: {batch.tp} may have the record, and no"
                    " reader of committed records ever sees it"
                )
            else:
                why = f"{self._transactions} was aborted before {batch.tp} had the record"
            error = TransactionAbortedError(why)
            error.__cause__ = cause
            self._outcomes.give_up(batch, error, now)

    # Asking ---------------------------------------------------------------------------------------

    def _ask(self, ask: Ask, now: float) -> None:
        wanted = ask.coordinator
        known = self._coordinators.get(wanted)
        if known is None:
            ask = FindCoordinator(ask)
            broker = self._network.any_usable(now)
        else:
            broker = self._reachable(wanted, *known, now)
        if broker is None:
            self._network.waiting[self] = None
            return
        self._in_flight = ask
        self._coordination.leaves(ask)
        answered, failed = partial(self.answered, ask), partial(self.failed, ask)
        request = ControlRequest(ask.api, ask.encode, answered, failed, ask.version_cap)
        broker.send(request, now)

    def _reachable(
        self, wanted: Coordinator, node_id: int, since: float, now: float
    ) -> Broker | None:
        """The node, if it takes a request now; where it never may, it is looked for anew."""
        broker = self._network.usable(node_id, now)
        if broker is not None:
            return broker
        if node_id not in self._metadata.snapshot.brokers:
            self._metadata.request_update(brokers=True)
            if now < since + PATIENCE:
                self._deadlines.set(self, since + PATIENCE)
                return None
        else:
            trouble = self._network.trouble(node_id, now)
            if trouble is None:
                return None
            self._transactions.trouble = trouble
            self._metadata.request_update(brokers=True)  # it may be at another address by now
        del self._coordinators[wanted]
        self._back_off(now)
        return None

    def _back_off(self, now: float, longest: float = FOREVER) -> None:
        self._failures += 1
        self._retry_at = now + min(self._backoff.delay(self._failures), longest)
        self._deadlines.set(self, self._retry_at)

    # Answers --------------------------------------------------------------------------------------

    def answered(self, ask: Ask, version: int, body: memoryview, now: float) -> int:
        """Take the answer, and decide what becomes of the question."""
        reply = ask.decode(version, body)
        self._in_flight = None
        self._deadlines.queued.append(self)
        if isinstance(ask, FindCoordinator):
            left = self._found(ask, reply, now)
        else:
            left = self._coordination.answered(ask, reply)
            self._hold_until = now + MARKERS
        if left is None:
            self._failures, self._retry_at = 0, 0.0
            self.identity.trouble = None
            if not isinstance(ask, FindCoordinator):  # which has still to be reached
                self._transactions.trouble = None
            known = self.identity.producer is not None or self.fatal is not None
            if known and not self.settled.is_open:
                self.settled.open()
        else:
            if left is Reaction.FIND_AGAIN:
                self._coordinators.pop(ask.coordinator, None)
            self._back_off(now, SOON if left is Reaction.RETRY_SOON else FOREVER)
        throttle_ms: int = reply.throttle_ms
        return throttle_ms

    def _found(self, ask: FindCoordinator, reply: Any, now: float) -> Reaction | None:
        if not reply.error_code:
            self._coordinators[ask.wanted] = reply.node_id, now
            if reply.node_id not in self._metadata.snapshot.brokers:
                self._metadata.request_update(brokers=True)
            return None
        found = reaction(ask.api, reply.error_code)
        self._transactions.trouble = BrokerError(reply.error_code, f"{ask}")
        return found if found is Reaction.RETRY else self._coordination.answered(ask, reply)

    def failed(self, ask: Ask, error: KprodError, now: float, *, sent: bool) -> None:
        """No answer came: ask again, perhaps another broker."""
        self._in_flight = None
        self._deadlines.queued.append(self)
        self._coordinators.pop(ask.coordinator, None)
        self._transactions.trouble = error
        self._coordination.lost(ask, error, sent=sent)
        self._back_off(now)

    def end(self, error: KprodError) -> None:
        """The producer has ended: callers that still wait get ``error``."""
        self._transactions.end_for_good(error)
        self._transactions.fetches.close(error)
        self.settled.open()
