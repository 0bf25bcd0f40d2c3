"""A coordinator with scripted answers, and the sender's side of a transaction."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from kprod.clock import ExponentialBackoff
from kprod.errors import ConnectionLost
from kprod.sender.coordination import Ask, Coordination
from kprod.sender.deadlines import Deadlines
from kprod.sender.partitions import ProducerIdentity
from kprod.sender.retry import Reaction
from kprod.sender.transactions import Call, Transactions
from kprod.types import ProducerId, TopicPartition
from kprod.wire.control import InitProducerIdReply
from kprod.wire.transactions import (
    CodeReply,
    EndTxnReply,
    GroupMetadata,
    OffsetToCommit,
    PartitionsReply,
)
from kprod.wire.versions import ApiKey, ApiVersions
from tests.support.steady_random import SteadyRandom

T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)
OFFSETS = (OffsetToCommit("in", 0, 7), OffsetToCommit("in", 1, 9))
MEMBER = GroupMetadata("group")
BOTH = pytest.mark.parametrize("implicit", [False, True], ids=["protocol-1", "protocol-2"])


class Dialogue:
    """``implicit``: brokers add partitions themselves. ``undrained``: records are in flight."""

    def __init__(self, *, implicit: bool, network: Any = None) -> None:
        self.undrained = False
        self._upgrades = 0
        self.transactions = Transactions("tx", 60_000)
        self.identity = ProducerIdentity()
        self.reopened: list[TopicPartition] = []
        self.updates: list[dict[str, bool]] = []
        """The arguments of each request for metadata."""
        # No request is sent.
        partitions: Any = SimpleNamespace(
            identity=self.identity,
            reopen=self.reopened.extend,
            deadlines=Deadlines(),
            retry_backoff=ExponentialBackoff(1, 100, SteadyRandom()),
            metadata=SimpleNamespace(
                snapshot=SimpleNamespace(brokers=range(3)),
                request_update=lambda **about: self.updates.append(about),
            ),
            network=network,
            accumulator=SimpleNamespace(flushes=set()),
        )
        self.coordination = Coordination(self.transactions, partitions)
        self.upgrade(2 if implicit else 1)

    def upgrade(self, level: int) -> None:
        """Set the cluster's level of the feature ``transaction.version``."""
        self._upgrades += 1
        self.transactions.on_api_versions(
            ApiVersions({}, {"transaction.version": level}, self._upgrades)
        )

    @property
    def producer(self) -> ProducerId:
        assert self.identity.producer is not None
        return self.identity.producer

    def next_ask(self) -> Ask | None:
        return self.coordination.next_ask(drained=not self.undrained)

    def due(self) -> Ask:
        ask = self.next_ask()
        assert ask is not None
        return ask

    def expect(self, kind: ApiKey) -> Any:
        """Send the request that is due, which must be of this kind."""
        ask = self.due()
        assert ask.api is kind
        self.coordination.leaves(ask)
        return ask

    def answer(self, kind: ApiKey, code: int = 0) -> Reaction | None:
        """Answer the request that is due as usual, or with an error code."""
        ask = self.expect(kind)
        left = self.coordination.take(ask, self.reply(ask, code), 0.0)
        self.coordination.release_hold()
        return left

    def lose(self, kind: ApiKey, *, sent: bool = True) -> None:
        """Lose the connection before the request that is due is answered."""
        error = ConnectionLost("the connection broke")
        self.coordination.failed(self.expect(kind), error, 0.0, sent=sent)

    def reply(self, ask: Ask, code: int = 0) -> Any:
        if ask.api is ApiKey.INIT_PRODUCER_ID:
            epoch = ask.fields[3] + 1 if ask.fields[2:] else 0
            return InitProducerIdReply(code, -1 if code else 40, -1 if code else epoch, 0)
        if ask.api is ApiKey.ADD_PARTITIONS_TO_TXN:
            return PartitionsReply([(*tp, code) for tp in ask.about], 0)
        if ask.api is ApiKey.TXN_OFFSET_COMMIT:
            results = [(offset.topic, offset.partition, code) for offset in ask.about.left]
            return PartitionsReply(results, 0)
        if ask.api is ApiKey.END_TXN and ask.version_cap is None and not code:
            return EndTxnReply(0, (self.producer.producer_id, self.producer.epoch + 1), 0)
        if ask.api is ApiKey.END_TXN:
            return EndTxnReply(code, None, 0)
        return CodeReply(code, 0)

    def initialize(self) -> None:
        self.transactions.start(Call.INIT)
        self.answer(ApiKey.INIT_PRODUCER_ID)
        self.collect(Call.INIT)

    def begin(self, *partitions: TopicPartition) -> None:
        """Begin a transaction and store a record in each of these partitions."""
        self.coordination.release_hold()
        self.transactions.begin()
        for tp in partitions:
            self.coordination.admits(tp)
        if partitions and not self.coordination.implicit:
            self.answer(ApiKey.ADD_PARTITIONS_TO_TXN)
        assert all(self.coordination.admits(tp) for tp in partitions)

    def commit(self) -> None:
        self.finish(Call.COMMIT)

    def abort(self) -> None:
        self.finish(Call.ABORT)

    def finish(self, call: Call) -> None:
        """Commit or abort, and answer every request."""
        self.transactions.start(call)
        while (ask := self.next_ask()) is not None:
            self.answer(ask.api)
        self.collect(call)

    def collect(self, call: Call) -> None:
        pending = self.transactions.start(call)
        assert pending.ended.is_open, "the call has not ended"
        self.transactions.collect(pending)
