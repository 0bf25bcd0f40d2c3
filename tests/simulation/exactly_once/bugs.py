"""Bugs planted on purpose in what a transactional producer decides and tells brokers."""

from __future__ import annotations

from collections.abc import Container
from typing import Any

from kprod.errors import BrokerError, ErrorCode, KprodError
from kprod.sender.coordination import Coordination
from kprod.sender.transaction_requests import (
    AddPartitions,
    Ask,
    CommitOffsets,
    Coordinator,
    EndTransaction,
    Reaction,
)
from kprod.sender.transactions import Call, PendingCall, State, Transactions
from kprod.types import ProducerId, TopicPartition
from kprod.wire import transactions as wire
from tests.simulation.planted import Bug

# What is decided ------------------------------------------------------------------------------


class IgnoresFailures(Transactions):
    def fail(self, cause: KprodError, states: Container[State] = ()) -> None:
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


# What is said to brokers ----------------------------------------------------------------------


class NotTransactional(Coordination):
    """Batches do not say that they are of a transaction."""

    def _identify(self, producer_id: int, epoch: int) -> None:
        self._identity.producer = ProducerId(producer_id, epoch, transactional=False)


class BelievesInTheNewProtocol(Coordination):
    """Partitions are never added, whatever the cluster's level."""

    def _begin_anew(self) -> None:
        super()._begin_anew()
        self.implicit = True


class GoesOnWithTheOldEpoch(Coordination):
    """After an end in doubt the next transaction has the epoch of the one before."""

    def _ended(self, *, renewed: bool) -> None:
        self._needs_epoch = self._may_come_late = False
        self._begin_anew()
        self._transactions.ready()


class NamesNoTransaction(Coordination):
    """Produce requests do not name the transactional id."""

    def __init__(self, *parts: Any) -> None:
        super().__init__(*parts)
        self.transactional_id = ""


class StaysWithACoordinator(Coordination):
    """Who was found once is asked for ever."""

    def answered(self, ask: Ask, reply: Any, now: float) -> None:
        before = dict(self._coordinators)
        super().answered(ask, reply, now)
        self._coordinators = {**self._coordinators, **before}


class KeepsWhatWasQueued(Coordination):
    """What an aborted transaction has queued is left to the next one."""

    def _gather(self, state: State, now: float) -> bool:
        return super()._gather(state, now) or state is State.ABORTING

    def _drop_queued(self, now: float) -> None:
        pass


class EndsBeforeTheAnswers(Coordination):
    """A transaction ends while records are on their way."""

    def next_ask(self, *, drained: bool) -> Ask | None:
        return super().next_ask(drained=True)

    def settle(self, *, drained: bool) -> bool:
        return super().settle(drained=True)


class ForgetsWhatFailed(Coordination):
    """A question without an answer is not asked again."""

    def failed(self, ask: Ask, error: Any, now: float, *, sent: bool) -> None:
        if not sent:
            super().failed(ask, error, now, sent=sent)


class EndsTheOtherWay(EndTransaction):
    """A commit whose answer was lost is repeated as an abort, and the other way round."""

    asked = 0

    def encode(self, version: int, correlation_id: int, client_id: str) -> bytes:
        EndsTheOtherWay.asked += 1
        if EndsTheOtherWay.asked % 5 == 0:
            self.committed = not self.committed
        return super().encode(version, correlation_id, client_id)


class AddsOne(AddPartitions):
    """Of several partitions one is added, and all are believed to be."""

    def encode(self, version: int, correlation_id: int, client_id: str) -> bytes:
        every, self.partitions = self.partitions, self.partitions[:1]
        try:
            return super().encode(version, correlation_id, client_id)
        finally:
            self.partitions = every

    def decode(self, version: int, body: memoryview) -> wire.PartitionsReply:
        results, throttle_ms = super().decode(version, body)
        code = results[0][2]
        return wire.PartitionsReply([(*tp, code) for tp in self.partitions], throttle_ms)


class ForgetsTheMember(CommitOffsets):
    """The group is not told which of its members asks."""

    def encode(self, version: int, correlation_id: int, client_id: str) -> bytes:
        self.member = wire.GroupMetadata(self.member.group_id)
        return super().encode(version, correlation_id, client_id)


class AsksTheWrongCoordinator(CommitOffsets):
    """Offsets go to the coordinator of the transaction."""

    @property
    def coordinator(self) -> Coordinator:
        return wire.TRANSACTION, self.of.transactional_id


COORDINATION = "kprod.sender.coordination"
PLACES: tuple[tuple[type, str], ...] = (
    (Transactions, "kprod.sender.assembly.Transactions"),
    (Coordination, "kprod.sender.assembly.Coordination"),
    (EndTransaction, f"{COORDINATION}.EndTransaction"),
    (AddPartitions, f"{COORDINATION}.AddPartitions"),
    (CommitOffsets, f"{COORDINATION}.CommitOffsets"),
)
CAUGHT_BY: dict[type, int] = {
    IgnoresFailures: 0,
    ForgetsWhoWaits: 0,
    TakesRecordsAnyTime: 0,
    RecoversFromFencing: 234,
    ForgetsOffsets: 0,
    AddsNothing: 0,
    EndsNothing: 0,
    CommitsAlways: 0,
    BelievesAddedAtOnce: 0,
    BelievesLostEnds: 150,
    TrustsLateEnds: 979,
    KeepsTheEpoch: 0,
    ReusesSequences: 48,
    TakesLateCommitsForFencing: 5209,
    TakesAnyAnswerForOffsets: 0,
    TakesAnyAnswerForAnEnd: 50,
    NotTransactional: 0,
    BelievesInTheNewProtocol: 0,
    GoesOnWithTheOldEpoch: 48,
    NamesNoTransaction: 0,
    StaysWithACoordinator: 21,
    KeepsWhatWasQueued: 12,
    EndsBeforeTheAnswers: 0,
    ForgetsWhatFailed: 0,
    EndsTheOtherWay: 0,
    AddsOne: 0,
    ForgetsTheMember: 0,
    AsksTheWrongCoordinator: 13,
}
"""A seed that notices each. A change of the model may move those that few others do."""


def _bug(broken: type) -> Bug:
    place = next(place for kind, place in PLACES if issubclass(broken, kind))
    return Bug(broken.__name__, CAUGHT_BY[broken], ((place, broken),))


BUGS = tuple(map(_bug, CAUGHT_BY))
