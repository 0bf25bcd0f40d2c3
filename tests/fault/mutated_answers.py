"""Mutated answers to every request of a producer, in virtual time: ``python -m
tests.fault.mutated_answers MUTATIONS [SEED]``.

A sender with everything that is real but its network and its clock: half of the producers with
transactions, of both protocols. Half of the brokers answer well at first, so that the producer
gets on, all with mutations then, and well again: by then every record has ended in time, and new
ones are stored.
"""

from __future__ import annotations

import random
import resource
import struct
import sys
import time
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from kprod.errors import KprodError
from kprod.sender.transactions import Call, PendingCall, State, Transactions
from kprod.transport.memory import ServerEnd
from kprod.wire.framing import FrameReader
from kprod.wire.transactions import GroupMetadata, OffsetToCommit
from kprod.wire.versions import ApiKey
from kprod_ext.futures import FutureRecordMetadata
from tests.support import hostile_answers as told
from tests.support.scripted_cluster import ScriptedCluster
from tests.support.sender_rig import SenderRig

DELIVERY = 5.0
OFFSETS = (OffsetToCommit("in", 0, 7),)
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
FINE = struct.pack(">ih", 0, 0)


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


class MutatingCluster(ScriptedCluster):
    """One broker that coordinates, too; when it is not ``well`` it mutates its ``SHARES``."""

    def __init__(self, rng: random.Random, level: int) -> None:
        super().__init__({"t": [1]})
        self.well = True
        self.mutations: Counter[str] = Counter()
        self.rng = rng
        self.name, self.host = b"mutating", b"broker-1"
        self._level = level
        self._epoch = 0
        node = self.add(1)
        self.listeners[node.host, node.port] = lambda: MutatingEnd(self)

    def body(self, api: ApiKey, version: int) -> bytes:
        """What a healthy broker says."""
        answers: dict[ApiKey, Callable[[int], bytes]] = {
            ApiKey.API_VERSIONS: self._versions,
            ApiKey.METADATA: lambda _: told.metadata(
                [told.broker(1, self.host)], [told.topic(b"t", [told.partition(0)])], self.name
            ),
            ApiKey.PRODUCE: self._produced,
            ApiKey.INIT_PRODUCER_ID: lambda _: FINE + self._next_producer() + b"\0",
            ApiKey.FIND_COORDINATOR: self._coordinator,
            ApiKey.ADD_PARTITIONS_TO_TXN: lambda _: self._results(b"t"),
            ApiKey.TXN_OFFSET_COMMIT: lambda _: self._results(b"in"),
            ApiKey.ADD_OFFSETS_TO_TXN: lambda _: FINE + b"\0",
            ApiKey.END_TXN: self._ended,
            ApiKey.GET_TELEMETRY_SUBSCRIPTIONS: self._subscription,
            ApiKey.PUSH_TELEMETRY: lambda _: FINE + b"\0",
        }
        return answers[api](version)

    def _versions(self, version: int) -> bytes:
        ranges = [struct.pack(">hhh", api, *span) for api, span in VERSIONS.items()]
        if version < 3:
            return struct.pack(">hi", 0, len(ranges)) + b"".join(ranges) + bytes(4)
        feature = told.text(b"transaction.version") + struct.pack(">hh", self._level, 0) + b"\0"
        levels = told.array([feature])
        tags = b"\2\1\x08" + struct.pack(">q", 1) + b"\2" + told.uvarint(len(levels)) + levels
        return b"\0\0" + told.array(each + b"\0" for each in ranges) + bytes(4) + tags

    def _produced(self, _version: int) -> bytes:
        return told.produced([(b"t", [told.result(0)])])

    def _coordinator(self, _version: int) -> bytes:
        found = told.text(b"tx") + told.broker(1)[:-2] + b"\0\0\0\0"
        return bytes(4) + told.array([found]) + b"\0"

    def _results(self, topic: bytes) -> bytes:
        result = struct.pack(">ih", 0, 0) + b"\0"
        return bytes(4) + told.array([told.text(topic) + told.array([result]) + b"\0"]) + b"\0"

    def _ended(self, version: int) -> bytes:
        return FINE + (self._next_producer() if version >= 5 else b"") + b"\0"

    def _next_producer(self) -> bytes:
        self._epoch += 1
        return struct.pack(">qh", 7, self._epoch)

    def _subscription(self, _version: int) -> bytes:
        metrics = told.array([told.text(b"org.apache.kafka.producer.")])
        told_ids = FINE + bytes(range(16)) + struct.pack(">i", 3) + told.array([])
        return told_ids + struct.pack(">ii?", 20_000, 100_000, True) + metrics + b"\0"


class MutatingEnd(ServerEnd):
    """One connection to it."""

    def __init__(self, cluster: MutatingCluster) -> None:
        self._cluster = cluster
        self._frames = FrameReader()

    def receive(self, data: bytes) -> bytes:
        return b"".join(map(self._answer, self._frames.feed(data)))

    def _answer(self, request: memoryview) -> bytes:
        api, version, number = struct.unpack_from(">hhi", request)
        cluster = self._cluster
        header = struct.pack(">i", number) + (b"" if api == ApiKey.API_VERSIONS else b"\0")
        message = header + cluster.body(ApiKey(api), version)
        share = SHARES.get(ApiKey(api), USUAL_SHARE)
        if cluster.well or cluster.rng.random() >= share:
            return struct.pack(">i", len(message)) + message
        cluster.mutations[ApiKey(api).name] += 1
        return mutated(cluster.rng, message)


class Bench:
    """One producer's life; ``transactional`` is None, or the level of ``transaction.version``."""

    def __init__(
        self, rng: random.Random, transactional: int | None, *, knows_topic: bool = True
    ) -> None:
        self.cluster = MutatingCluster(rng, transactional or 0)
        options: dict[str, Any] = {} if transactional is None else {"transactional_id": "tx"}
        self.rig = SenderRig(
            self.cluster,
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
    for _ in range(bench.cluster.rng.choice((0, 3))):
        bench.go_on()
    bench.cluster.well = False
    idle = 0
    while bench.cluster.mutations.total() < mutations and idle < PATIENCE:
        before = bench.cluster.mutations.total()
        bench.go_on()
        bench.check_deadlines()
        idle = idle + 1 if bench.cluster.mutations.total() == before else 0
    bench.cluster.well = True
    # Another cluster: of this one it may have been told a leader epoch that nobody reaches again.
    bench.cluster.name = b"well"
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


def run(mutations: int, seed: int = 1) -> tuple[Counter[str], float, int]:
    """At least so many; how many by request, the longest step in seconds of CPU, and producers."""
    counted: Counter[str] = Counter()
    longest, producers = 0.0, 0
    while counted.total() < mutations:
        rng = random.Random(f"{seed}/{producers}")
        bench = Bench(rng, (None, 1, 2, 2)[producers % 4])
        try:
            live(bench, MUTATIONS_PER_PRODUCER)
        except BaseException as error:
            error.add_note(f"seed {seed}, producer {producers}")
            raise
        finally:
            bench.rig.sender.abort(KprodError("the producer is over"))
        counted += bench.cluster.mutations
        longest = max(longest, bench.longest)
        producers += 1
    return counted, longest, producers


if __name__ == "__main__":
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    found, slowest, lives = run(*map(int, sys.argv[1:]))
    grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
    print(f"{found.total()} mutated answers, {lives} producers, {dict(found)}")
    print(f"longest step {1000 * slowest:.0f} ms of CPU, {grown / 1000:.0f} MB more at the peak")
