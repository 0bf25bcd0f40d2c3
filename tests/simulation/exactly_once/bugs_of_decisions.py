"""Bugs planted on purpose in what a transactional producer decides: each must be noticed."""

from __future__ import annotations

from typing import Any

from kprod.errors import BrokerError, ErrorCode, KprodError
from kprod.sender.coordination import Coordination
from kprod.sender.transaction_requests import (
    AddPartitions,
    Ask,
    CommitOffsets,
    EndTransaction,
    Reaction,
)
from kprod.sender.transactions import Call, PendingCall, State, Transactions
from kprod.types import TopicPartition


class IgnoresFailures(Transactions):
    def fail(self, cause: KprodError) -> None:
        pass


class ForgetsWhoWaits(Transactions):
    def start(self, call: Call) -> PendingCall:
        self._pending = None
        if call is Call.ABORT and self.state is State.COMMITTING:
            self.state = State.IN_TRANSACTION
        return super().start(call)


class TakesRecordsAnyTime(Transactions):
    def refusal(self) -> KprodError | None:
        return None

    def begin(self) -> None:
        self.state = State.READY if self.state is State.COMMITTING else self.state
        super().begin()


class RecoversFromFencing(Transactions):
    def end_for_good(self, error: KprodError) -> None:
        if self.state is not State.INITIALIZING:
            self.fail(error)


class ForgetsOffsets(Transactions):
    def next_offsets(self) -> Any:
        found = super().next_offsets()
        if found is not None:
            self.offsets_sent(found)
        return None


class AddsNothing(Coordination):
    def may_send(self, tp: TopicPartition) -> bool:
        if super().may_send(tp) or tp not in self._wanted:
            return True
        self._wanted.clear()
        self.started = True
        return True


class EndsNothing(Coordination):
    def next_ask(self, *, drained: bool) -> Ask | None:
        self.started = False
        return super().next_ask(drained=drained)


class CommitsAlways(Coordination):
    def next_ask(self, *, drained: bool) -> Ask | None:
        ask = super().next_ask(drained=drained)
        if isinstance(ask, EndTransaction):
            ask.committed = True
        return ask


class BelievesAddedAtOnce(Coordination):
    def leaves(self, ask: Ask) -> None:
        super().leaves(ask)
        if isinstance(ask, AddPartitions):
            self._added.update(ask.partitions)
            self._wanted.clear()


class BelievesLostEnds(Coordination):
    def failed(self, ask: Ask, error: KprodError, now: float, *, sent: bool) -> None:
        before = self._may_come_late
        super().failed(ask, error, now, sent=sent)
        if isinstance(ask, EndTransaction) and sent:
            self._may_come_late = before
            self._ended(renewed=False)


class TrustsLateEnds(Coordination):
    def _ended(self, *, renewed: bool) -> None:
        self._may_come_late = False
        super()._ended(renewed=renewed)


class KeepsTheEpoch(Coordination):
    def _identify(self, producer_id: int, epoch: int) -> None:
        if self._identity.producer is None:
            super()._identify(producer_id, epoch)


class ReusesSequences(Coordination):
    def sequence_lost(self) -> None:
        pass


class TakesLateCommitsForFencing(Coordination):
    """The coordinator's own abort ends the producer (KAFKA-20785)."""

    def _react(self, ask: Ask, code: int, where: str = "") -> Reaction | None:
        if isinstance(ask, EndTransaction) and code == ErrorCode.PRODUCER_FENCED:
            self._end_for_good(Reaction.FENCED, BrokerError(code, str(ask)))
            return None
        return super()._react(ask, code, where)


class TakesAnyAnswerForOffsets(Coordination):
    def take(self, ask: Ask, reply: Any) -> Reaction | None:
        if isinstance(ask, CommitOffsets):
            results = [(topic, number, 0) for topic, number, _ in reply.results]
            reply = reply._replace(results=results)
        return super().take(ask, reply)


class TakesAnyAnswerForAnEnd(Coordination):
    def take(self, ask: Ask, reply: Any) -> Reaction | None:
        if isinstance(ask, EndTransaction):
            reply = reply._replace(error_code=0)
        return super().take(ask, reply)


BUGS: tuple[type[Transactions] | type[Coordination], ...] = (
    IgnoresFailures,
    ForgetsWhoWaits,
    TakesRecordsAnyTime,
    RecoversFromFencing,
    ForgetsOffsets,
    AddsNothing,
    EndsNothing,
    CommitsAlways,
    BelievesAddedAtOnce,
    BelievesLostEnds,
    TrustsLateEnds,
    KeepsTheEpoch,
    ReusesSequences,
    TakesLateCommitsForFencing,
    TakesAnyAnswerForOffsets,
    TakesAnyAnswerForAnEnd,
)
