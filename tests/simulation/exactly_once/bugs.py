"""Bugs planted on purpose in what a transactional producer decides and tells brokers."""

from __future__ import annotations

from collections.abc import Container
from typing import Any

from kprod.errors import BrokerError, ErrorCode, KprodError
from kprod.sender.coordination import Ask, Coordination, by_topic
from kprod.sender.retry import Reaction
from kprod.sender.transactions import Call, PendingCall, State, Transactions
from kprod.types import ProducerId, TopicPartition
from kprod.wire import transactions as wire
from kprod.wire.versions import ApiKey
from tests.simulation.planted import Bug


def ends(ask: Ask, committed: bool) -> None:
    """Let a question end its transaction so."""
    ask.fields, ask.about = (*ask.fields[:-1], committed), committed


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
        if ask is not None and ask.api is ApiKey.END_TXN:
            ends(ask, True)
        return ask


class BelievesAddedAtOnce(Coordination):
    def leaves(self, ask: Ask) -> None:
        super().leaves(ask)
        if ask.api is ApiKey.ADD_PARTITIONS_TO_TXN:
            self._added.update(ask.about)
            self._wanted.clear()


class BelievesLostEnds(Coordination):
    def failed(self, ask: Ask, error: KprodError, now: float, *, sent: bool) -> None:
        before = self._needs_epoch
        super().failed(ask, error, now, sent=sent)
        if ask.api is ApiKey.END_TXN and sent:
            self._needs_epoch = before
            self._ended(renewed=False)


class TrustsLateEnds(Coordination):
    def failed(self, ask: Ask, error: KprodError, now: float, *, sent: bool) -> None:
        before = self._needs_epoch
        super().failed(ask, error, now, sent=sent)
        self._needs_epoch = before


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
        if ask.api is ApiKey.END_TXN and code == ErrorCode.PRODUCER_FENCED:
            self._end_for_good(Reaction.FENCED, BrokerError(code, str(ask)))
            return None
        return super()._react(ask, code, where)


class TakesAnyAnswerForOffsets(Coordination):
    def take(self, ask: Ask, reply: Any, now: float) -> Reaction | None:
        if ask.api is ApiKey.TXN_OFFSET_COMMIT:
            results = [(topic, number, 0) for topic, number, _ in reply.results]
            reply = reply._replace(results=results)
        return super().take(ask, reply, now)


class TakesAnyAnswerForAnEnd(Coordination):
    def take(self, ask: Ask, reply: Any, now: float) -> Reaction | None:
        if ask.api is ApiKey.END_TXN:
            reply = reply._replace(error_code=0)
        return super().take(ask, reply, now)


# What is said to brokers ----------------------------------------------------------------------


class NotTransactional(Coordination):
    """Batches do not say that they are of a transaction."""

    def _identify(self, producer_id: int, epoch: int) -> None:
        self._identity.producer = ProducerId(producer_id, epoch, transactional=False)


class BelievesInTheNewProtocol(Coordination):
    """Partitions are never added, whatever the cluster's level."""

    def _begin_anew(self) -> None:
        super()._begin_anew()
        self._transactions.used_level = 2


class GoesOnWithTheOldEpoch(Coordination):
    """After an end in doubt the next transaction has the epoch of the one before."""

    def _ended(self, *, renewed: bool) -> None:
        self._needs_epoch = False
        self._begin_anew()


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


class ForgetsWhatFailed(Coordination):
    """A question without an answer is not asked again."""

    def failed(self, ask: Ask, error: Any, now: float, *, sent: bool) -> None:
        if not sent:
            super().failed(ask, error, now, sent=sent)


class EndsTheOtherWay(Coordination):
    """A commit whose answer was lost is repeated as an abort, and the other way round."""

    asked = 0

    def leaves(self, ask: Ask) -> None:
        super().leaves(ask)
        if ask.api is ApiKey.END_TXN:
            EndsTheOtherWay.asked += 1
            if EndsTheOtherWay.asked % 5 == 0:
                ends(ask, not ask.about)


class AddsOne(Coordination):
    """Of several partitions one is added, and all are believed to be."""

    def leaves(self, ask: Ask) -> None:
        super().leaves(ask)
        if ask.api is ApiKey.ADD_PARTITIONS_TO_TXN:
            ask.fields = *ask.fields[:-1], by_topic(ask.about[:1])

    def take(self, ask: Ask, reply: Any, now: float) -> Reaction | None:
        if ask.api is ApiKey.ADD_PARTITIONS_TO_TXN:
            code = reply.results[0][2]
            reply = reply._replace(results=[(*tp, code) for tp in ask.about])
        return super().take(ask, reply, now)


class ForgetsTheMember(Coordination):
    """The group is not told which of its members asks."""

    def leaves(self, ask: Ask) -> None:
        super().leaves(ask)
        if ask.api is ApiKey.TXN_OFFSET_COMMIT:
            *before, member, left = ask.fields
            ask.fields = *before, wire.GroupMetadata(member.group_id), left


class AsksTheWrongCoordinator(Coordination):
    """Offsets go to the coordinator of the transaction."""

    def next_ask(self, *, drained: bool) -> Ask | None:
        ask = super().next_ask(drained=drained)
        if ask is not None and ask.api is ApiKey.TXN_OFFSET_COMMIT:
            ask.coordinator = wire.TRANSACTION, self.transactional_id
        return ask


PLACES: tuple[tuple[type, str], ...] = (
    (Transactions, "kprod.sender.assembly.Transactions"),
    (Coordination, "kprod.sender.assembly.Coordination"),
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
