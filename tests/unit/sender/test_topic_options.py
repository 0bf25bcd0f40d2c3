"""A topic's own linger, codec and acks hold for that topic and no other."""

from __future__ import annotations

from typing import Any

from kprod.buffer.compression import CODEC_IDS
from kprod.wire.versions import ApiKey
from kprod_ext.futures import FutureRecordMetadata
from tests.support.scripted_cluster import Heard, ScriptedBroker, ScriptedCluster, refuse
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
    bodies = [heard.body for heard in broker.heard if heard.api is ApiKey.PRODUCE]
    return [(body.acks, {topic.name for topic in body.topic_data}) for body in bodies]


def done(rig: SenderRig, *futures: FutureRecordMetadata) -> bool:
    """Whether all of them have an outcome soon."""
    return rig.run(lambda: all(future.is_done for future in futures), seconds=SOON)


def test_codec() -> None:
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


def test_one_kind_of_acks_does_not_keep_another_waiting() -> None:
    options: dict[str, Any] = {"acks": 1, "max_in_flight_requests_per_connection": 1}
    rig = rig_with({"b": {"acks": "all"}}, batch_size=1, **options)
    busy = [rig.queue(topic="a", partition=number % 2) for number in range(20)]
    other = [rig.queue(topic="b") for _ in range(3)]
    assert done(rig, *busy, *other)
    kinds = [acks for acks, _ in produced(rig.cluster.brokers[1])]
    assert kinds[:6] in ([1, -1, 1, -1, 1, -1], [-1, 1, -1, 1, -1, 1])


def test_what_may_not_leave_for_order_does_not_keep_other_acks_waiting() -> None:
    rig = rig_with({"b": {"acks": 0}}, acks=1, retry_backoff_ms=10, batch_size=1)
    broker = rig.cluster.brokers[1]
    first: list[Heard] = []

    def hold(_broker: ScriptedBroker, heard: Heard) -> bytes:
        first.append(heard)
        return b""

    def refuse_the_first(broker: ScriptedBroker, _heard: Heard) -> bytes | None:
        return refuse(NOT_ENOUGH_REPLICAS)(broker, first[0])

    broker.next(ApiKey.PRODUCE, hold, refuse_the_first)
    stuck = [rig.queue(topic="a") for _ in range(2)]
    assert rig.run(lambda: rig.metrics.topic("a").records_retried == 1, seconds=SOON)
    for _ in range(3):  # its back-off is over and it was served least of late, but may not leave
        rig.clock.advance(1)
        assert done(rig, rig.queue(topic="b"))
    assert not any(future.is_done for future in stuck)
    assert [topics for _, topics in produced(broker)] == [{"a"}, {"a"}, {"b"}, {"b"}, {"b"}]
