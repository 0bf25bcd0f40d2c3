"""Responses with unexpected content, and brokers that lack a needed API."""

from __future__ import annotations

import random
import struct
from dataclasses import replace
from functools import partial
from typing import Any

import pytest

from kprod.errors import ProtocolError
from kprod.sender.broker import READS_PER_TURN, RECEIVE_BYTES
from kprod.types import Broker
from kprod.wire.control import MOST_BROKERS, MOST_PARTITIONS, MOST_UNASKED, decode_metadata_response
from kprod.wire.produce import decode_produce_response
from kprod.wire.transactions import (
    decode_add_partitions_response,
    decode_txn_offset_commit_response,
)
from kprod.wire.versions import ApiKey
from tests.support import hostile_answers as hostile
from tests.support.entered import entered
from tests.support.scripted_cluster import (
    OFFERED,
    Answer,
    ReceivedRequest,
    ScriptedBroker,
    ScriptedCluster,
)
from tests.support.sender_rig import SenderRig, rig_of
from tests.unit.sender.broker_rig import BrokerRig
from tests.unit.sender.exchanges import SETTINGS, RawServer, answer
from tests.unit.sender.test_network import NetworkRig


def as_if_asked(*partitions: int) -> Answer:
    """Answer as if the request had these partitions, each with the records it sent."""

    def answer(broker: ScriptedBroker, request: ReceivedRequest) -> bytes:
        body = request.body
        (asked,) = body.topic_data
        (part,) = asked.partition_data
        parts = tuple(replace(part, index=n) for n in partitions)
        topics = (replace(asked, partition_data=parts),)
        return broker.usual(request._replace(body=replace(body, topic_data=topics)))

    return answer


@pytest.mark.parametrize("partitions", [(0, 1), (1, 0), (0, 0)], ids=str)
def test_results_for_partitions_not_in_the_request_are_ignored(
    broker: ScriptedBroker, partitions: tuple[int, int], caplog: pytest.LogCaptureFixture
) -> None:
    answer = as_if_asked(*partitions)
    broker.next(ApiKey.PRODUCE, answer)
    rig = rig_of(broker.cluster)
    future = rig.queue()
    assert rig.run(lambda: future.is_done, seconds=5)
    assert future.get(0).offset == 0
    assert "not asked for, t-1" in caplog.text or "not asked for, t-0" in caplog.text
    assert broker.connections == 1
    broker.next(ApiKey.PRODUCE, *[answer] * 20)
    assert all(rig.run(rig.queue().succeeded, seconds=1) for _ in range(20))
    assert caplog.text.count("not asked for") == 1


def garbage(_: ScriptedBroker, request: ReceivedRequest) -> bytes:
    """A correct correlation id followed by invalid bytes."""
    message = request.correlation_id.to_bytes(4, "big") + b"\xff" * 40
    return len(message).to_bytes(4, "big") + message


@pytest.mark.parametrize("api", [ApiKey.PRODUCE, ApiKey.METADATA, ApiKey.INIT_PRODUCER_ID])
def test_an_unreadable_response_is_retried(broker: ScriptedBroker, api: ApiKey) -> None:
    broker.next(api, garbage, garbage)
    rig = rig_of(broker.cluster)
    future = rig.queue()
    assert rig.run(lambda: future.is_done, seconds=5)
    assert future.succeeded()
    assert broker.count(api) == 3


def test_a_topic_without_a_known_id_is_addressed_by_name(broker: ScriptedBroker) -> None:
    broker.offered[ApiKey.PRODUCE] = (3, 13)
    rig = rig_of(broker.cluster)
    assert rig.run(rig.queue().succeeded)
    assert [request.version for request in broker.received if request.api is ApiKey.PRODUCE] == [12]


LONG = replace(SETTINGS, max_frame_bytes=4 * 1024 * 1024)
T = hostile.topic(b"t", [hostile.partition(0)])
ONE = hostile.broker(1)


def test_metadata_with_far_more_than_was_requested_is_refused() -> None:
    half = [hostile.partition(0, replicas=hostile.NOBODY)] * (MOST_PARTITIONS // 2 + 1)
    too_many_topics = [T, *(hostile.topic(b"u", []) for _ in range(MOST_UNASKED + 1))]
    too_many_brokers = [ONE, *map(hostile.broker, range(2, MOST_BROKERS + 2))]
    for brokers, topics in (
        ([ONE], too_many_topics),
        (too_many_brokers, [T]),
        ([ONE], [hostile.topic(b"t", half), hostile.topic(b"u", half)]),
    ):
        with pytest.raises(ProtocolError, match="the most to be expected"):
            decode_metadata_response(12, memoryview(hostile.metadata(brokers, topics)), {"t"})
    every = decode_metadata_response(12, memoryview(hostile.metadata([ONE], too_many_topics)))
    assert len(every.topics) == MOST_UNASKED + 2, "when all topics are requested"


def test_topics_that_were_not_requested_are_not_kept() -> None:
    """Only topics that were used expire: others would be kept for ever."""
    cluster = ScriptedCluster({"t": [1]})
    broker = cluster.add(1)
    rig = SenderRig(cluster)
    others = [hostile.topic(b"u%d" % number, [hostile.partition(0)]) for number in range(9)]
    broker.next(ApiKey.METADATA, hostile.answering(hostile.metadata([ONE], [*others, T])))
    rig.know("t")
    assert list(rig.sender.metadata.snapshot.topics) == ["t"]


def calls_to_adopt(brokers: int) -> int:
    """Function calls to adopt so many brokers, half of them already known."""
    rig = NetworkRig("boot")
    both = {n: Broker(n, f"h{n}", 9092) for n in range(2 * brokers)}
    rig.network.adopt({n: both[n] for n in range(brokers)})
    half = {n: both[n] for n in range(brokers // 2, 2 * brokers)}
    calls = sum(entered(partial(rig.network.adopt, each)) for each in (half, both))
    rig.network.close()
    return calls


def test_adopting_brokers_takes_linear_time() -> None:
    assert calls_to_adopt(800) < 5 * calls_to_adopt(200)


MANY_ERRORS = [hostile.record_error(index) for index in range(11)]
PRODUCED = {
    "partitions": hostile.produced([(b"t", [hostile.result(0)] * 12)]),
    "partitions in topics": hostile.produced([(b"t", [hostile.result(0)])] * 12),
    "topics": hostile.produced([(b"t", [])] * 12),
    "record errors": hostile.produced([(b"t", [hostile.result(0, 87, MANY_ERRORS)])]),
    "record errors in parts": hostile.produced(
        [(b"t", [hostile.result(0, 87, MANY_ERRORS[:6]), hostile.result(0, 87, MANY_ERRORS[:5])])]
    ),
    "leaders": hostile.produced(
        [(b"t", [hostile.result(0)])], hostile.leaders([hostile.broker(n) for n in range(12)])
    ),
}


@pytest.mark.parametrize("body", PRODUCED.values(), ids=PRODUCED)
def test_a_produce_response_with_far_more_than_was_requested_is_refused(body: bytes) -> None:
    """For one partition with ten records."""
    with pytest.raises(ProtocolError, match="the most to be expected"):
        decode_produce_response(12, memoryview(body), 1, 10)
    decode_produce_response(12, memoryview(body))


@pytest.mark.parametrize(
    "decode", [decode_add_partitions_response, decode_txn_offset_commit_response]
)
def test_results_for_more_partitions_than_a_transaction_has_are_refused(decode: Any) -> None:
    name = struct.pack(">h", 1) + b"t"
    one = name + struct.pack(">iih", 1, 0, 0)
    two = name + struct.pack(">iihih", 2, 0, 0, 1, 0)
    for topics in ([one, one, one], [two, one], [one, two]):
        body = memoryview(struct.pack(">ii", 0, len(topics)) + b"".join(topics))
        with pytest.raises(ProtocolError, match="the most to be expected"):
            decode(0, body, 2)
        assert len(decode(0, body, 3).results) == 3


def test_reading_from_one_broker_is_limited_per_iteration() -> None:
    """The rest is read in the next iteration, even if the backend does not report it."""
    rig = BrokerRig(RawServer(), settings=LONG)
    rig.connect()
    exchange = rig.send()
    size = 5 * READS_PER_TURN * RECEIVE_BYTES // 2
    rig.transport.deliver(answer(1, bytes(size)))
    before = rig.metrics.node(rig.broker.address.node_id).bytes_in
    for iteration in range(1, 4):
        assert exchange.ends == []
        if iteration == 1:
            rig.poll()
        else:
            assert rig.backend.wakes == iteration - 1
            rig.broker.fire(rig.clock.now)
        read = rig.metrics.node(rig.broker.address.node_id).bytes_in - before
        assert read == min(iteration * READS_PER_TURN * RECEIVE_BYTES, size + 9)
    assert exchange.ends == [("answered", bytes(size))]


@pytest.mark.parametrize("missing", [ApiKey.METADATA, ApiKey.PRODUCE, ApiKey.INIT_PRODUCER_ID])
def test_records_wait_while_a_broker_does_not_offer_a_needed_api(
    broker: ScriptedBroker, missing: ApiKey, caplog: pytest.LogCaptureFixture
) -> None:
    rig = SenderRig(broker.cluster)
    future = rig.queue()
    del broker.offered[missing]
    assert not rig.run(lambda: future.is_done, seconds=20)
    assert f"broker-1:9092: {missing.name}: the broker does not offer it" in caplog.text
    assert broker.count(missing) == 0
    broker.offered.update(OFFERED)
    assert rig.run(future.succeeded, seconds=5)


def test_records_wait_while_no_usable_produce_version_is_offered(broker: ScriptedBroker) -> None:
    rig = SenderRig(broker.cluster)
    broker.offered[ApiKey.PRODUCE] = (13, 13)  # needs topic ids, and there are none
    rig.know("t")
    futures = [rig.queue() for _ in range(3)]
    assert not rig.run(lambda: any(future.is_done for future in futures), seconds=20)
    assert broker.connections < 60
    broker.offered.update(OFFERED)
    assert rig.run(lambda: all(future.succeeded() for future in futures), seconds=5)


@pytest.mark.parametrize(
    "order", ["controller:9093,broker-1:9092", "broker-1:9092,controller:9093"]
)
def test_an_address_without_the_metadata_api_is_skipped(
    broker: ScriptedBroker, order: str, caplog: pytest.LogCaptureFixture
) -> None:
    cluster = broker.cluster
    controller = ScriptedBroker(cluster, 9, "controller", 9093)
    controller.offered = {ApiKey.API_VERSIONS: (0, 4)}
    cluster.listeners["controller", 9093] = controller.accept
    for seed in range(12):
        rig = SenderRig(cluster, bootstrap_servers=order, rng=random.Random(seed))
        future = rig.queue()
        started = rig.clock.now
        assert rig.run(future.succeeded, seconds=2), f"{seed}: {rig.clock.now - started} s"
    assert controller.connections > 0
    assert "is this the address of a controller?" in caplog.text
