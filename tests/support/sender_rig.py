"""A whole sender with a scripted cluster, in virtual time."""

from __future__ import annotations

import random
import weakref
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from kprod.buffer.accumulator import RecordAccumulator
from kprod.buffer.callbacks import Callbacks
from kprod.cluster.metadata import MetadataListener
from kprod.config import ProducerConfig
from kprod.errors import KprodError, ProducerClosedError
from kprod.intake.queue_loads import QueueLoads
from kprod.metrics import ProducerMetrics
from kprod.sender.assembly import assemble
from kprod.telemetry import Telemetry
from kprod.types import TopicPartition
from kprod_ext.futures import FutureRecordMetadata
from tests.support.fake_clock import FakeClock
from tests.support.scripted_cluster import ScriptedCluster
from tests.support.virtual_backend import VirtualBackend

_queues: weakref.WeakSet[RecordAccumulator] = weakref.WeakSet()


@pytest.fixture(autouse=True)
def records_end() -> Iterator[None]:
    """Fail a rig's remaining records after a test.

    The garbage collector cannot find queues through their batches: descriptors would stay open.
    """
    yield
    over = ProducerClosedError("the test is over")
    while _queues:
        for batch in _queues.pop().incomplete.copy():
            batch.delivery.fail(over)


class SenderRig:
    """``options`` are the producer's, with their defaults except linger 0.

    ``loads`` among them watch queues and nodes. ``rng`` makes the sender's random choices,
    the same ones in every run.
    """

    def __init__(
        self,
        cluster: ScriptedCluster,
        *,
        clock: FakeClock | None = None,
        rng: random.Random | None = None,
        **options: Any,
    ) -> None:
        self.cluster = cluster
        self.clock = clock or FakeClock()
        self.backend = VirtualBackend(self.clock, cluster.listeners)
        self.metrics = ProducerMetrics()
        first = min(cluster.brokers.values(), key=lambda broker: broker.node_id)
        options = {
            "bootstrap_servers": f"{first.host}:{first.port}",
            "linger_ms": 0,
            "transport": lambda **_: self.backend,
            **options,
        }
        loads: QueueLoads | None = options.pop("loads", None)
        callbacks: Callbacks | None = options.pop("callbacks", None)
        config = ProducerConfig.from_options(options)
        rng = rng or random.Random(1)
        waits = None if loads is None else loads.waiting
        self.sender = assemble(config, self.metrics, self.clock, rng, waits, callbacks)
        if loads is not None:
            loads.watch(self.sender.partitions)
            self.sender.metadata.subscribe(MetadataListener(forgotten=loads.forget))
        Telemetry.of(self.sender, config, self.metrics, rng.uniform)
        self.turns = 0
        _queues.add(self.sender.accumulator)

    def know(self, *topics: str) -> None:
        """Let the sender look up the topics."""
        self.sender.metadata.used(dict.fromkeys(topics, self.clock.now))
        self.sender.metadata.request_update()
        assert self.run(lambda: all(self.sender.metadata.snapshot.topic(t) for t in topics))

    def queue(
        self, value: bytes = b"value", *, topic: str = "t", partition: int = 0
    ) -> FutureRecordMetadata:
        """Queue a record, as ``send`` does with a known partition."""
        tp = TopicPartition(topic, partition)
        now = self.clock.wall_ms()
        result = self.sender.accumulator.append(tp, now, None, value, (), 0)
        future: FutureRecordMetadata = result.future
        return future

    def run(self, until: Callable[[], bool], seconds: float = 3600, most_turns: int = 500) -> bool:
        """Iterate until the condition holds; False after ``seconds`` of virtual time."""
        deadline = self.clock.now + seconds
        self.backend.enough = until
        for _ in range(most_turns):
            if self.clock.now > deadline:
                return False
            if until():
                return True
            self.turns += 1
            self.sender.run_once()
        raise AssertionError(
            f"{most_turns} iterations in {self.clock.now - deadline + seconds:g} s"
        )


def rig_of(cluster: ScriptedCluster, **options: Any) -> SenderRig:
    rig = SenderRig(cluster, **options)
    rig.know("t")
    return rig


MODES: dict[str, dict[str, Any]] = {
    "idempotent": {},
    "plain": {"enable_idempotence": False, "acks": 1},
}
"""Options of both kinds of producers."""


def error_of(future: FutureRecordMetadata) -> KprodError:
    error: KprodError | None = future.exception
    assert error is not None
    return error
