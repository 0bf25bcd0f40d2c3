"""Send the due requests to a transaction's coordinators, one at a time (KIP-98, KIP-890)."""

from __future__ import annotations

from functools import partial
from typing import Any

from kprod.buffer.accumulator import RecordAccumulator
from kprod.clock import ExponentialBackoff
from kprod.cluster.metadata import Metadata
from kprod.errors import BrokerError, KprodError, TransactionAbortedError
from kprod.latch import Latch
from kprod.sender.coordination import Coordination
from kprod.sender.exchange import ControlRequest
from kprod.sender.network import Network
from kprod.sender.outcomes import Outcomes
from kprod.sender.sequences import ProducerIdentity
from kprod.sender.transaction_requests import Ask, Coordinator, FindCoordinator, Reaction, reaction
from kprod.sender.transactions import DOOMED, State, Transactions

FOREVER = float("inf")
SOON = 0.02
"""Seconds until something is added again while the transaction before is still being ended."""
MARKERS = 0.0006
"""Seconds that a cluster needs for the markers of a transaction after it has answered EndTxn.

Apache Kafka puts off a request of the next transaction that comes before that by 20 ms (decision
0042)."""
FLUSHING = frozenset({State.COMMITTING, State.PREPARED})
ENDING = FLUSHING | DOOMED
PATIENCE = 1.0
"""Seconds for which the metadata may lack a broker that was named as coordinator."""


class TransactionRound:
    """The identity of a transactional producer, and all its requests but Produce and Metadata.

    Thread: the sender's only.
    """

    def __init__(
        self,
        transactions: Transactions,
        coordination: Coordination,
        identity: ProducerIdentity,
        accumulator: RecordAccumulator,
        outcomes: Outcomes,
        metadata: Metadata,
        network: Network,
        backoff: ExponentialBackoff,
    ) -> None:
        self._transactions = transactions
        self._coordination = coordination
        self._identity = identity
        self._accumulator = accumulator
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
        return self._identity.fatal

    @property
    def busy(self) -> bool:
        """True while a caller waits for a coordinator, or ``close`` for an abort."""
        return self._transactions.under_way

    def run_first(self, now: float) -> float:
        """As ``run``, before batches leave."""
        return self.run(now)

    def run(self, now: float) -> float:
        """Send a due request to a coordinator that takes one; seconds until the next look."""
        self._gather(now)
        if now < self._hold_until and self._coordination.holds:
            return self._hold_until - now
        if self._coordination.let_go():
            return 0.0  # where this turn is past the batches, the next one sends them
        return FOREVER if self._in_flight is not None else self._go_on(now)

    def _go_on(self, now: float) -> float:
        """No question is on its way: ``run``'s answer."""
        if self._coordination.settle():
            return 0.0
        ask = self._coordination.due()
        if ask is None:
            return FOREVER
        if now < self._retry_at:
            return self._retry_at - now
        return self._ask(ask, now)

    def _gather(self, now: float) -> None:
        """A transaction that ends takes no more records; those in it leave at once, or never."""
        state = self._transactions.state
        if state in ENDING and self._sealed != self._transactions.number:
            # From here on a record can only be one of the next transaction.
            self._accumulator.close_open_batches()
            self._sealed = self._transactions.number
        if (state in FLUSHING) is not self._flushing:
            self._flushing = not self._flushing
            if self._flushing:
                self._accumulator.begin_flush()
            else:
                self._accumulator.end_flush()
        if state in DOOMED:
            self._drop_queued(now)
        if state is State.ABORTING:
            self._transactions.aborts()

    def _drop_queued(self, now: float) -> None:
        cause = self._transactions.error
        for batch in self._accumulator.take_all():
            why = f"{self._transactions} was aborted before {batch.tp} had the record"
            error = TransactionAbortedError(why)
            error.__cause__ = cause
            self._outcomes.give_up(batch, error, now)

    # Asking ---------------------------------------------------------------------------------------

    def _ask(self, ask: Ask, now: float) -> float:
        wanted = ask.coordinator
        known = self._coordinators.get(wanted)
        if known is None:
            ask = FindCoordinator(ask)
            node_id = self._network.any_usable(now)
            if node_id is None:
                return FOREVER
        else:
            node_id, since = known
            wait = self._unreachable_for(wanted, node_id, since, now)
            if wait > 0.0:
                return wait
        self._in_flight = ask
        self._coordination.leaves(ask)
        answered, failed = partial(self.answered, ask), partial(self.failed, ask)
        request = ControlRequest(ask.api, ask.encode, answered, failed, ask.version_cap)
        self._network.send(node_id, request, now)
        return FOREVER

    def _unreachable_for(
        self, wanted: Coordinator, node_id: int, since: float, now: float
    ) -> float:
        """Seconds until a coordinator may be asked, or looked for anew; 0.0: it can be asked."""
        if node_id not in self._metadata.snapshot.brokers:
            self._metadata.request_update(brokers=True)
            left = since + PATIENCE - now
            return left if left > 0 else self._look_elsewhere(wanted, now)
        if self._network.usable(node_id, now):
            return 0.0
        trouble = self._network.trouble(node_id, now)
        if trouble is None:
            return FOREVER
        self._transactions.trouble = trouble
        self._metadata.request_update(brokers=True)  # it may be at another address by now
        return self._look_elsewhere(wanted, now)

    def _look_elsewhere(self, wanted: Coordinator, now: float) -> float:
        """The coordinator may be another broker by now; seconds until the request for that."""
        del self._coordinators[wanted]
        self._back_off(now)
        return self._retry_at - now

    def _back_off(self, now: float, longest: float = FOREVER) -> None:
        self._failures += 1
        self._retry_at = now + min(self._backoff.delay(self._failures), longest)

    # Answers --------------------------------------------------------------------------------------

    def answered(self, ask: Ask, version: int, body: memoryview, now: float) -> int:
        """Take the answer, and decide what becomes of the question."""
        reply = ask.decode(version, body)
        self._in_flight = None
        if isinstance(ask, FindCoordinator):
            left = self._found(ask, reply, now)
        else:
            left = self._coordination.answered(ask, reply)
            self._hold_until = now + MARKERS
        if left is None:
            self._failures, self._retry_at = 0, 0.0
            self._identity.trouble = None
            if not isinstance(ask, FindCoordinator):  # which has still to be reached
                self._transactions.trouble = None
            self._settle()
        else:
            if left is Reaction.FIND_AGAIN:
                self._coordinators.pop(ask.coordinator, None)
            self._back_off(now, SOON if left is Reaction.RETRY_SOON else FOREVER)
        throttle_ms: int = reply.throttle_ms
        return throttle_ms

    def _settle(self) -> None:
        known = self._identity.producer is not None or self.fatal is not None
        if known and not self.settled.is_open:
            self.settled.open()

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
        self._coordinators.pop(ask.coordinator, None)
        self._transactions.trouble = error
        self._coordination.lost(ask, error, sent=sent)
        self._back_off(now)

    def end(self, error: KprodError) -> None:
        """The producer has ended: callers that still wait get ``error``."""
        self._transactions.end_for_good(error)
        self._transactions.fetches.close(error)
        self.settled.open()
