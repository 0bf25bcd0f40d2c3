"""Settings and state of single topics, and the removal of unused topics."""

from __future__ import annotations

import gc
import random
import sys
import threading
from collections.abc import Iterable
from typing import Any, cast

import pytest

from kprod.buffer.compiled_topics import CompiledTopics
from kprod.buffer.compression import CODEC_IDS
from kprod.cluster.metadata import MetadataListener
from kprod.intake.partitioner import DefaultPartitioner
from kprod.intake.queue_loads import QueueLoads
from kprod.types import TopicPartition
from kprod.wire.versions import ApiKey
from kprod_ext import CompiledSend
from kprod_ext.futures import FutureRecordMetadata
from tests.support.pool_waiter import wait_until
from tests.support.scripted_cluster import (
    ReceivedRequest,
    ScriptedBroker,
    ScriptedCluster,
    refuse,
    silence,
)
from tests.support.scripted_producer import producer_before
from tests.support.sender_rig import SenderRig

SOON = 2.0
NOT_ENOUGH_REPLICAS = 19


def rig_with(topic_options: dict[str, dict[str, Any]], **options: Any) -> SenderRig:
    """One broker that leads all of topics ``a``, ``b`` and ``c``."""
    cluster = ScriptedCluster(topics={"a": [1, 1], "b": [1], "c": [1]})
    cluster.add(1)
    rig = SenderRig(cluster, topic_options=topic_options, **options)
    rig.know("a", "b", "c")
    return rig


def produced(broker: ScriptedBroker) -> list[tuple[int, set[str]]]:
    """The acks and the topics of every Produce request, in order."""
    bodies = [request.body for request in broker.received if request.api is ApiKey.PRODUCE]
    return [(body.acks, {topic.name for topic in body.topic_data}) for body in bodies]


def done(rig: SenderRig, *futures: FutureRecordMetadata) -> bool:
    """Run until all of them have an outcome."""
    return rig.run(lambda: all(future.is_done for future in futures), seconds=SOON)


def test_the_codec_is_that_of_the_topic() -> None:
    own: dict[str, dict[str, Any]] = {
        "a": {"compression_type": "zstd"},
        "b": {"compression_type": None},
    }
    rig = rig_with(own, compression_type="gzip")
    assert done(rig, *(rig.queue(bytes(500), topic=topic) for topic in "abc"))
    stored = {tp.topic: batch for tp, (batch,) in rig.cluster.log.items()}
    codecs = {topic: batch.codec for topic, batch in stored.items()}
    assert codecs == {"a": CODEC_IDS["zstd"], "b": CODEC_IDS["none"], "c": CODEC_IDS["gzip"]}
    assert all([r.value for r in batch.records()] == [bytes(500)] for batch in stored.values())


def test_batches_share_a_request_only_if_they_ask_for_the_same_acks() -> None:
    rig = rig_with({"b": {"acks": 0}}, acks=1)
    futures = [rig.queue(topic=topic) for topic in "abc"]
    assert done(rig, *futures)
    requests = produced(rig.cluster.brokers[1])
    assert sorted(requests) == [(0, {"b"}), (1, {"a", "c"})]
    assert [future.get(0).offset for future in futures] == [0, -1, 0]


def test_topics_with_different_acks_alternate() -> None:
    options: dict[str, Any] = {"acks": 1, "max_in_flight_requests_per_connection": 1}
    rig = rig_with({"b": {"acks": "all"}}, batch_size=1, **options)
    busy = [rig.queue(topic="a", partition=number % 2) for number in range(20)]
    other = [rig.queue(topic="b") for _ in range(3)]
    assert done(rig, *busy, *other)
    kinds = [acks for acks, _ in produced(rig.cluster.brokers[1])]
    assert kinds[:6] in ([1, -1, 1, -1, 1, -1], [-1, 1, -1, 1, -1, 1])


def test_a_batch_held_back_for_order_does_not_delay_topics_with_other_acks() -> None:
    rig = rig_with({"b": {"acks": 0}}, acks=1, retry_backoff_ms=10, batch_size=1)
    broker = rig.cluster.brokers[1]
    first: list[ReceivedRequest] = []

    def hold(_broker: ScriptedBroker, request: ReceivedRequest) -> bytes:
        first.append(request)
        return b""

    def refuse_the_first(broker: ScriptedBroker, _request: ReceivedRequest) -> bytes | None:
        return refuse(NOT_ENOUGH_REPLICAS)(broker, first[0])

    broker.next(ApiKey.PRODUCE, hold, refuse_the_first)
    stuck = [rig.queue(topic="a") for _ in range(2)]
    assert rig.run(lambda: rig.metrics.topic("a").records_retried == 1, seconds=SOON)
    for _ in range(3):  # its back-off is over, but it must not be sent
        rig.clock.advance(1)
        assert done(rig, rig.queue(topic="b"))
    assert not any(future.is_done for future in stuck)
    assert [topics for _, topics in produced(broker)] == [{"a"}, {"a"}, {"b"}, {"b"}, {"b"}]


# Removal of unused topics -------------------------------------------------------------------------


IDLE = 300
"""Seconds without records after which the next metadata drops a topic."""


class Caller(CompiledSend):
    """The state of topics in sending threads: partitioner, compiled path, loads."""

    def __init__(self, broker: ScriptedBroker) -> None:
        self.loads = loads = QueueLoads()
        self.partitioner = DefaultPartitioner(16_384, random.Random(1), loads=loads)
        self.rig = SenderRig(broker.cluster, metadata_max_idle_ms=IDLE * 1000, loads=loads)
        sender = self.rig.sender
        sender.metadata.subscribe(MetadataListener(forgotten=self.partitioner.forget))
        self._topics = CompiledTopics(
            self._topic_appenders, sender.accumulator, sender.metadata, largest=1_000
        )
        self.rig.know("used")

    def use(self, topics: Iterable[str]) -> None:
        """Send one record without a key to each of them."""
        names = list(topics)
        self.rig.know("used", *names)
        futures = [self._send_first(name) for name in names]
        assert self.rig.run(lambda: all(future.succeeded() for future in futures))

    def _send_first(self, name: str) -> FutureRecordMetadata:
        topic = self.rig.sender.metadata.snapshot.topic(name)
        assert topic is not None
        partition = self.partitioner.choose(topic, None)
        future = self.rig.queue(topic=name, partition=partition)
        sticky = self.partitioner.sticky(name)
        self._topics.admit(TopicPartition(name, partition), len(topic), sticky)
        return future


@pytest.fixture
def broker() -> ScriptedBroker:
    return ScriptedCluster(topics={"used": [1], "unused": [1, 1]}).add(1)


def rig_of(broker: ScriptedBroker, *topics: str) -> SenderRig:
    rig = SenderRig(broker.cluster, metadata_max_idle_ms=IDLE * 1000)
    rig.know(*topics)
    return rig


def expire(rig: SenderRig, *topics: str) -> None:
    """Advance the clock until ``topics`` are removed, while another one is used."""
    metadata = rig.sender.metadata
    for _ in range(10):
        assert rig.run(rig.queue(topic="used").succeeded)
        rig.clock.advance(IDLE / 3)
    assert not metadata.dropped
    assert not [topic for topic in topics if metadata.snapshot.topic(topic) is not None]


@pytest.mark.full
@pytest.mark.alone  # threads of other tests may free memory
def test_an_unused_topic_is_freed(broker: ScriptedBroker, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("WARNING", "kprod")  # pytest keeps DEBUG messages
    names = [f"topic-{number:04}" for number in range(1400)]
    broker.cluster.topics |= {name: [1] for name in names}
    caller = Caller(broker)
    rig = caller.rig
    warm, cold = names[:1100], names[1100:]  # these fill caches of limited size
    caller.use(warm)
    expire(rig, *warm)
    before = blocks(rig)
    caller.use(cold)
    meanwhile = blocks(rig)
    expire(rig, *cold)
    kept = (blocks(rig) - before) / len(cold)
    assert (meanwhile - before) / len(cold) > 20, "the measurement does not work"
    assert kept < 0.5
    assert not [name for name in rig.metrics.groups(rig.clock.now) if "topic-0" in name]


def blocks(rig: SenderRig) -> int:
    """Allocated blocks of memory without those of the cluster."""
    (broker,) = rig.cluster.brokers.values()
    rig.cluster.log.clear()
    broker.received.clear()
    for _ in range(10):  # garbage of other tests may take several collections
        if not gc.collect():
            break
    return sys.getallocatedblocks()


def test_records_of_a_removed_topic_stay_counted(broker: ScriptedBroker) -> None:
    rig = rig_of(broker, "used", "unused")
    assert rig.run(rig.queue(topic="unused").succeeded)
    expire(rig, "unused")
    sent = rig.metrics.groups(rig.clock.now)["producer-metrics"]
    assert sent["record-send-total"] == rig.metrics.records_sent
    assert sent["outgoing-byte-total"] > 0
    assert "unused" not in rig.metrics.topics


def test_a_topic_that_is_used_again_gets_a_new_epoch(broker: ScriptedBroker) -> None:
    """With the old one the first sequence would be taken as a duplicate, and not be stored."""
    rig = rig_of(broker, "used", "unused")
    assert rig.run(rig.queue(b"first", topic="unused").succeeded)
    expire(rig, "unused")
    rig.know("used", "unused")
    assert rig.run(rig.queue(b"again", topic="unused").succeeded)
    assert rig.run(rig.queue(b"other", topic="unused", partition=1).succeeded)
    assert rig.run(rig.queue(topic="used").succeeded)
    first, again = broker.cluster.log[TopicPartition("unused", 0)]
    assert (first.producer_epoch, first.base_sequence) == (0, 0)
    assert (again.producer_epoch, again.base_sequence) == (1, 0)
    (other,) = broker.cluster.log[TopicPartition("unused", 1)]
    assert (other.producer_epoch, other.base_sequence) == (1, 0)
    assert broker.cluster.log[TopicPartition("used", 0)][-1].producer_epoch == 1


class EpochsOfACoordinator:
    """A transaction that admits all batches. The coordinator sets its epoch."""

    def __init__(self) -> None:
        self.lost = 0
        self.transactional_id = "tx"
        self.implicit = False

    def admits(self, _tp: TopicPartition) -> bool:
        return True

    def sequence_lost(self) -> None:
        self.lost += 1


def test_a_transactional_producer_forgets_at_its_next_epoch(broker: ScriptedBroker) -> None:
    """With protocol 1 the epoch may stay the same for long."""
    rig = rig_of(broker, "used", "unused")
    partitions = rig.sender.partitions
    assert rig.run(rig.queue(topic="used").succeeded)  # it has a producer id
    epochs = EpochsOfACoordinator()
    partitions.transaction = cast(Any, epochs)
    assert rig.run(rig.queue(topic="unused").succeeded)
    for _ in range(10):
        assert rig.run(rig.queue(topic="used").succeeded)
        rig.clock.advance(IDLE / 3)
    assert epochs.lost
    assert "unused" in partitions.queues
    assert partitions.identity.producer is not None
    partitions.identity.producer = partitions.identity.producer._replace(epoch=1)
    expire(rig, "unused")
    assert "unused" not in partitions.queues


def test_a_topic_with_a_request_in_flight_is_kept(broker: ScriptedBroker) -> None:
    rig = SenderRig(
        broker.cluster,
        metadata_max_idle_ms=5_000,
        metadata_max_age_ms=5_000,
        request_timeout_ms=60_000,
        enable_idempotence=False,
    )
    rig.know("used", "unused")
    broker.next(ApiKey.PRODUCE, silence)
    future = rig.queue(b"late", topic="unused")
    assert not rig.run(lambda: future.is_done, seconds=30)
    assert rig.run(future.succeeded), "the retry needs the queue"
    assert broker.cluster.values("unused") == [b"late"]


def test_a_topic_with_a_lingering_record_is_kept(broker: ScriptedBroker) -> None:
    """Not dropped, and requested again when the record is ready."""
    rig = SenderRig(
        broker.cluster, metadata_max_idle_ms=5_000, metadata_max_age_ms=1_000, linger_ms=60_000
    )
    known: list[bool] = []
    rig.know("unused")
    rig.sender.metadata.subscribe(
        MetadataListener(
            published=lambda snapshot: known.append(snapshot.topic("unused") is not None)
        )
    )
    assert rig.run(rig.queue(b"late", topic="unused").succeeded)
    assert len(known) > 30
    assert all(known)


def test_the_partitioner_forgets_removed_topics() -> None:
    """Round robin starts again."""
    cluster = ScriptedCluster(topics={"t": [1, 1, 1]})
    cluster.add(1)
    with producer_before(cluster, partitioner="round_robin") as producer:
        before = [producer.send("t", b"").get(20).partition for _ in range(2)]
        producer.metadata.forgotten({"t"})
        after = [producer.send("t", b"").get(20).partition for _ in range(2)]
    assert before == after == [0, 1]


def test_a_record_waiting_for_memory_goes_into_the_new_queue(broker: ScriptedBroker) -> None:
    """A record in the removed queue would never be sent."""
    rig = SenderRig(broker.cluster, buffer_memory=40_000, batch_size=20_000, linger_ms=60_000)
    rig.know("used", "unused")
    assert rig.run(rig.queue(topic="unused").succeeded)
    accumulator, now = rig.sender.accumulator, rig.clock.wall_ms()
    others = [TopicPartition(topic, 0) for topic in ("first", "second")]
    for tp in others:  # without a leader: they occupy all memory
        accumulator.append(tp, now, None, b"", (), 0)
    sent: list[FutureRecordMetadata] = []

    def send() -> None:
        unused = TopicPartition("unused", 0)
        sent.append(accumulator.append(unused, now, None, b"late", (), 20).future)

    thread = threading.Thread(target=send)
    thread.start()
    wait_until(lambda: accumulator.pool.waiting > 0)
    retired, used = accumulator.forget({"unused"})
    assert (retired, used) == ([TopicPartition("unused", 0)], set())
    for batch in [batch for tp in others for batch in accumulator.partition_queue(tp).take_all()]:
        accumulator.incomplete.discard(batch)
        batch.release()
    thread.join(20)
    assert rig.run(sent[0].succeeded)
    assert broker.cluster.values("unused") == [b"value", b"late"]
