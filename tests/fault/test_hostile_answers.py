"""Mutated answers to every request of a producer, in virtual time.

A sender with everything that is real but its network and its clock: half of the producers with
transactions, of both protocols. Half of the brokers answer well at first, so that the producer
gets on, all with mutations then, and well again: by then every record has ended in time, and new
ones are stored. ``KPROD_CAMPAIGN=long``: 50,000 mutations.
"""

from __future__ import annotations

import random
import struct
import time
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from typing import Any
from uuid import UUID

import pytest

from kprod.errors import KprodError
from kprod.sender.transactions import Call, PendingCall, State, Transactions
from kprod.wire.transactions import GroupMetadata, OffsetToCommit
from kprod.wire.versions import ApiKey
from kprod_ext.futures import FutureRecordMetadata
from tests.support.scripted_cluster import Heard, ScriptedBroker, ScriptedCluster, api_keys, frame
from tests.support.sender_rig import SenderRig
from tests.support.tier import CAMPAIGN

DELIVERY = 5.0
OFFSETS = (OffsetToCommit("in", 0, 7),)
MUTATIONS = 50_000 if CAMPAIGN else 300
MUTATIONS_PER_PRODUCER = 40
PATIENCE = 30
"""Steps of the application without an answer: the broker may have asked for minutes of silence."""
LONGEST_SILENCE = 310.0
VERSIONS = {
    ApiKey.PRODUCE: (9, 12),
    ApiKey.METADATA: (12, 12),
    ApiKey.API_VERSIONS: (0, 4),
    ApiKey.INIT_PRODUCER_ID: (4, 4),
    ApiKey.FIND_COORDINATOR: (4, 4),
    ApiKey.ADD_PARTITIONS_TO_TXN: (3, 3),
    ApiKey.ADD_OFFSETS_TO_TXN: (3, 3),
    ApiKey.TXN_OFFSET_COMMIT: (3, 5),
    ApiKey.END_TXN: (3, 5),
    ApiKey.GET_TELEMETRY_SUBSCRIPTIONS: (0, 0),
    ApiKey.PUSH_TELEMETRY: (0, 0),
}
SHARES = {
    ApiKey.API_VERSIONS: 0.1,
    ApiKey.METADATA: 0.25,
    ApiKey.PUSH_TELEMETRY: 0.1,
    ApiKey.FIND_COORDINATOR: 0.2,
}
"""Of the answers to what is asked on every connection, or again and again."""
USUAL_SHARE = 0.5
TRANSACTIONAL = (
    ApiKey.INIT_PRODUCER_ID,
    ApiKey.FIND_COORDINATOR,
    ApiKey.ADD_PARTITIONS_TO_TXN,
    ApiKey.ADD_OFFSETS_TO_TXN,
    ApiKey.TXN_OFFSET_COMMIT,
    ApiKey.END_TXN,
)
OTHERS: dict[str, Any] = {
    "results_by_topic_v3_and_below": [
        {"name": "t", "results_by_partition": [{"partition_index": 0, "partition_error_code": 0}]}
    ],
    "topics": [{"name": "in", "partitions": [{"partition_index": 0, "error_code": 0}]}],
    "client_instance_id": UUID(int=1),
    "subscription_id": 3,
    "push_interval": 20_000,
    "telemetry_max_bytes": 100_000,
    "delta_temporality": True,
    "requested_metrics": ["org.apache.kafka.producer."],
}
"""What answers have to say: each takes what it has a field for."""


def mutated(rng: random.Random, message: bytes) -> bytes:
    """The frame of a message that something has happened to; the size may be wrong as well."""
    data = bytearray(message)
    for _ in range(rng.choice((1, 1, 1, 2, 5))):
        at = rng.randrange(len(data)) if data else 0
        end = min(len(data), at + rng.choice((1, 1, 2, 4, 8)))
        kind = rng.randrange(8)
        if kind <= 2 and data:
            data[at] ^= 1 << rng.randrange(8)
        elif kind == 3:
            data[at:end] = rng.choice((b"\xff", b"\0", b"\x7f", b"\x80")) * (end - at)
        elif kind == 4:
            data[at:at] = rng.randbytes(rng.choice((1, 2, 4, 30)))
        elif kind == 5:
            data[at:at] = data[at : at + rng.randrange(60)] * rng.choice((1, 2, 50))
        elif kind == 6:
            del data[at:end]
        else:
            del data[at:]
    size = len(data)
    if not rng.randrange(12):
        size = rng.choice((0, -1, size - 1, size + 1, size + 40, 2**31 - 1, 17 * 1024 * 1024))
    return struct.pack(">i", size) + bytes(data)


class MutatingBroker(ScriptedBroker):
    """Coordinates, too; when it is not ``well`` it mutates its ``SHARES`` of answers."""

    def __init__(self, rng: random.Random, level: int) -> None:
        super().__init__(ScriptedCluster({"t": [1]}), 1, "broker-1", 9092)
        self.cluster.brokers[1] = self
        self.cluster.listeners[self.host, self.port] = self.accept
        self.offered = dict(VERSIONS)
        self.well = True
        self.mutations: Counter[str] = Counter()
        self.rng = rng
        self._level = level
        self._epoch = 0

    def answer(self, heard: Heard) -> bytes:
        usual = self.usual(heard)
        if self.well or self.rng.random() >= SHARES.get(heard.api, USUAL_SHARE):
            return usual
        self.mutations[heard.api.name] += 1
        return mutated(self.rng, usual[4:])

    def usual(self, heard: Heard) -> bytes:
        if heard.api is ApiKey.METADATA:
            told = self.cluster.metadata(["t"])
            for partition in told["topics"][0]["partitions"]:
                partition |= {"replica_nodes": [1, 2, 3], "isr_nodes": [1, 2, 3]}
            return frame(heard, **told)
        if heard.api is ApiKey.PRODUCE:
            return super().usual(heard)
        if heard.api in (ApiKey.INIT_PRODUCER_ID, ApiKey.END_TXN):
            self._epoch += 1
        return frame(heard, **OTHERS, **self._own())

    def _own(self) -> dict[str, Any]:
        feature = {"name": "transaction.version", "max_version_level": self._level}
        return {
            "api_keys": api_keys(self.offered),
            "finalized_features": [{**feature, "min_version_level": 0}],
            "finalized_features_epoch": 1,
            "producer_id": 7,
            "producer_epoch": self._epoch,
            "coordinators": [{"key": "tx", **self.endpoint}],
        }


class Bench:
    """One producer's life; ``transactional`` is None, or the level of ``transaction.version``."""

    def __init__(
        self, rng: random.Random, transactional: int | None, *, knows_topic: bool = True
    ) -> None:
        self.broker = MutatingBroker(rng, transactional or 0)
        options: dict[str, Any] = {} if transactional is None else {"transactional_id": "tx"}
        self.rig = SenderRig(
            self.broker.cluster,
            rng=random.Random(rng.random()),
            delivery_timeout_ms=int(1000 * DELIVERY),
            request_timeout_ms=1000,
            metadata_max_age_ms=700,
            **options,
        )
        self.records: list[tuple[float, FutureRecordMetadata]] = []
        self.longest = 0.0
        self.unfinished: PendingCall | None = None
        if knows_topic:
            self.rig.know("t")

    @property
    def transactions(self) -> Transactions | None:
        return self.rig.sender.transactions

    def turns(
        self, seconds: float, until: Callable[[], bool] = lambda: False, step: float = 0.1
    ) -> bool:
        """Let virtual time pass, at most ``step`` in a turn; True as soon as something is so."""
        end = self.rig.clock.now + seconds
        self.rig.backend.enough = until
        while not until():
            if self.rig.clock.now >= end:
                return False
            self.rig.sender.run_once(step)
        return True

    def record(self) -> FutureRecordMetadata:
        future = self.rig.queue()
        self.records.append((self.rig.clock.now, future))
        return future

    def call(self, call: Call) -> None:
        """One call of a transaction, if it may be made; what it ends in is as it may be."""
        transactions = self.transactions
        assert transactions is not None
        try:
            if call is Call.BEGIN:
                transactions.begin()
                return
            if call is Call.OFFSETS:
                pending: Any = transactions.start_offsets(OFFSETS, GroupMetadata("group"))
            else:
                pending = transactions.start(call)
            self.rig.sender.metadata.wake()
            self.unfinished = pending
            self.hear(transactions)
        except KprodError:
            pass

    def hear(self, transactions: Transactions) -> None:
        """Wait for the call that is under way; another one may be made only after its end."""
        pending = self.unfinished
        if pending is not None and self.turns(3.0, lambda: pending.ended.is_open):
            self.unfinished = None
            with suppress(KprodError):
                transactions.heard(pending)

    def go_on(self) -> None:
        """What an application does next, and how much CPU the few turns of it take."""
        began = time.process_time()
        self._do_next()
        self.longest = max(self.longest, time.process_time() - began)

    def _do_next(self) -> None:
        transactions = self.transactions
        if transactions is None:
            self.record()
            self.turns(0.3)
            return
        self.hear(transactions)
        state = transactions.state
        if self.unfinished is not None:
            return
        if state is State.IN_TRANSACTION:
            self.record()
            self.call(Call.OFFSETS)
            self.call(Call.COMMIT)
        elif state is State.READY:
            self.call(Call.BEGIN)
        elif state in (State.ABORTABLE_ERROR, State.ABORTING):
            self.call(Call.ABORT)
        elif state is State.COMMITTING:
            self.call(Call.COMMIT)
        else:
            self.call(Call.INIT)
        self.turns(0.01)

    def over(self) -> bool:
        """True when this producer will send nothing any more, and says so."""
        return self.rig.sender.identity.fatal is not None

    def check_deadlines(self) -> None:
        """Every record has ended within its time; each look is 0.1 s after the one before."""
        now = self.rig.clock.now
        for since, future in self.records:
            assert future.is_done or now <= since + DELIVERY + 0.3, "a record is late"
        self.records = [(since, future) for since, future in self.records if not future.is_done]


def live(bench: Bench, mutations: int) -> None:
    """Well, with so many mutations, and well again."""
    for _ in range(bench.broker.rng.choice((0, 3))):
        bench.go_on()
    bench.broker.well = False
    idle = 0
    while bench.broker.mutations.total() < mutations and idle < PATIENCE:
        before = bench.broker.mutations.total()
        bench.go_on()
        bench.check_deadlines()
        idle = idle + 1 if bench.broker.mutations.total() == before else 0
    bench.broker.well = True
    # Another cluster: of this one it may have been told a leader epoch that nobody reaches again.
    bench.broker.cluster.cluster_id = "well"
    bench.turns(2 * DELIVERY, lambda: all(future.is_done for _, future in bench.records))
    bench.check_deadlines()
    assert not bench.records
    bench.turns(LONGEST_SILENCE, step=10.0)
    for _ in range(40):
        if bench.over():  # by an answer from before, where every broker answers well now
            return
        bench.go_on()
        if any(future.is_done and future.succeeded() for _, future in bench.records):
            return
    raise AssertionError("nothing is stored although brokers answer well")


@pytest.mark.timeout(1800)
def test_producers_outlive_mutated_answers() -> None:
    counted: Counter[str] = Counter()
    longest, producers = 0.0, 0
    while counted.total() < MUTATIONS:
        rng = random.Random(f"1/{producers}")
        bench = Bench(rng, (None, 1, 2, 2)[producers % 4])
        try:
            live(bench, MUTATIONS_PER_PRODUCER)
        except BaseException as error:
            error.add_note(f"producer {producers}")
            raise
        finally:
            bench.rig.sender.abort(KprodError("the producer is over"))
        counted += bench.broker.mutations
        longest = max(longest, bench.longest)
        producers += 1
    print(f"{dict(counted)}, {producers} producers, longest step {1000 * longest:.0f} ms of CPU")
    of_transactions = sum(counted[api.name] for api in TRANSACTIONAL)
    assert of_transactions > counted.total() / 5


def test_a_coordinator_at_another_address_is_found_without_a_topic_in_use() -> None:
    """The one that metadata told of leads nowhere, and nothing else asks for metadata again."""
    bench = Bench(random.Random(1), 2, knows_topic=False)
    bench.broker.host = "gone"
    bench.call(Call.INIT)
    call = bench.unfinished
    assert call is not None
    bench.broker.host = "broker-1"
    assert bench.turns(60.0, lambda: call.ended.is_open, step=1.0)
    assert call.error is None
