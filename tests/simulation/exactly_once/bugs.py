"""Bugs planted on purpose in what a transactional producer says to brokers: each must be noticed.

Those of its decisions are in ``bugs_of_decisions``; the others are here.
"""

from __future__ import annotations

import importlib
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

from kprod.sender.coordination import Coordination
from kprod.sender.transaction_requests import (
    AddPartitions,
    Ask,
    CommitOffsets,
    Coordinator,
    EndTransaction,
)
from kprod.sender.transactions import State, Transactions
from kprod.types import ProducerId
from kprod.wire import transactions as wire
from tests.simulation.exactly_once import bugs_of_decisions as of_decisions


class Bug(NamedTuple):
    """``place``: the public name, in its module, that ``broken`` takes the place of."""

    name: str
    place: str
    broken: type

    @contextmanager
    def planted(self) -> Iterator[None]:
        path, _, name = self.place.rpartition(".")
        module = importlib.import_module(path)
        real = getattr(module, name)
        setattr(module, name, self.broken)
        try:
            yield
        finally:
            setattr(module, name, real)


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
BROKEN: tuple[type, ...] = (
    *of_decisions.BUGS,
    NotTransactional,
    BelievesInTheNewProtocol,
    GoesOnWithTheOldEpoch,
    NamesNoTransaction,
    StaysWithACoordinator,
    KeepsWhatWasQueued,
    EndsBeforeTheAnswers,
    ForgetsWhatFailed,
    EndsTheOtherWay,
    AddsOne,
    ForgetsTheMember,
    AsksTheWrongCoordinator,
)


def _bug(broken: type) -> Bug:
    place = next(place for kind, place in PLACES if issubclass(broken, kind))
    return Bug(broken.__name__, place, broken)


BUGS = tuple(_bug(broken) for broken in BROKEN)
