"""Answers with far more in them than was asked: little work, little kept, and records go on."""

from __future__ import annotations

import struct
import sys
from dataclasses import replace
from typing import Any

import pytest

from kprod.errors import ProtocolError
from kprod.sender.broker import READS_PER_TURN, RECEIVE_BYTES
from kprod.types import Broker
from kprod.wire.control import (
    MOST_BROKERS,
    MOST_PARTITIONS,
    MOST_UNASKED,
    decode_metadata_response,
)
from kprod.wire.produce import decode_produce_response
from kprod.wire.transactions import (
    decode_add_partitions_response,
    decode_txn_offset_commit_response,
)
from kprod.wire.versions import ApiKey
from tests.support import hostile_answers as told
from tests.support.scripted_cluster import ScriptedCluster
from tests.support.sender_rig import SenderRig, rig_of
from tests.unit.sender.broker_rig import BrokerRig
from tests.unit.sender.exchanges import SETTINGS, answer
from tests.unit.sender.raw_server import RawServer
from tests.unit.sender.test_network import NetworkRig

LONG = replace(SETTINGS, max_frame_bytes=4 * 1024 * 1024)
T = told.topic(b"t", [told.partition(0)])
ONE = told.broker(1)


def too_many_topics() -> bytes:
    return told.metadata([ONE], [T, *(told.topic(b"u", []) for _ in range(MOST_UNASKED + 1))])


def too_many_brokers() -> bytes:
    return told.metadata([ONE, *map(told.broker, range(2, MOST_BROKERS + 2))], [T])


def too_many_partitions() -> bytes:
    half = [told.partition(0, replicas=told.NOBODY)] * (MOST_PARTITIONS // 2 + 1)
    return told.metadata([ONE], [told.topic(b"t", half), told.topic(b"u", half)])


@pytest.mark.parametrize("body", [too_many_topics, too_many_brokers, too_many_partitions])
def test_metadata_of_far_more_than_was_asked_is_refused(body: Any) -> None:
    with pytest.raises(ProtocolError, match="the most to be expected"):
        decode_metadata_response(12, memoryview(body()), {"t"})


def test_all_topics_may_be_as_many_as_they_are() -> None:
    body = too_many_topics()
    assert len(decode_metadata_response(12, memoryview(body)).topics) == MOST_UNASKED + 2


def test_topics_that_were_not_asked_for_are_not_kept() -> None:
    """Nobody would ever forget them: what is out of use is what was in use."""
    cluster = ScriptedCluster({"t": [1]})
    broker = cluster.add(1)
    rig = SenderRig(cluster)
    others = [told.topic(b"u%d" % number, [told.partition(0)]) for number in range(9)]
    broker.next(ApiKey.METADATA, told.answering(told.metadata([ONE], [*others, T])))
    rig.know("t")
    assert list(rig.sender.metadata.snapshot.topics) == ["t"]


def calls_to_adopt(brokers: int) -> int:
    """How many calls of functions it takes to adopt so many, half of them known before."""
    rig = NetworkRig("boot")
    both = {n: Broker(n, f"h{n}", 9092) for n in range(2 * brokers)}
    rig.network.adopt({n: both[n] for n in range(brokers)})
    calls = 0

    def count(_frame: object, event: str, _argument: object) -> None:
        nonlocal calls
        calls += event in {"call", "c_call"}

    before = sys.getprofile()
    sys.setprofile(count)
    try:
        rig.network.adopt({n: both[n] for n in range(brokers // 2, 2 * brokers)})
        rig.network.adopt(both)
    finally:
        sys.setprofile(before)
    rig.network.close()
    return calls


def test_the_work_for_brokers_is_linear() -> None:
    assert calls_to_adopt(800) < 5 * calls_to_adopt(200)


MANY_ERRORS = [told.record_error(index) for index in range(11)]
PRODUCED = {
    "partitions": told.produced([(b"t", [told.result(0)] * 12)]),
    "partitions in topics": told.produced([(b"t", [told.result(0)])] * 12),
    "topics": told.produced([(b"t", [])] * 12),
    "record errors": told.produced([(b"t", [told.result(0, 87, MANY_ERRORS)])]),
    "record errors in parts": told.produced(
        [(b"t", [told.result(0, 87, MANY_ERRORS[:6]), told.result(0, 87, MANY_ERRORS[:5])])]
    ),
    "leaders": told.produced(
        [(b"t", [told.result(0)])], told.leaders([told.broker(n) for n in range(12)])
    ),
}


@pytest.mark.parametrize("body", PRODUCED.values(), ids=PRODUCED)
def test_a_produce_answer_with_far_more_than_was_asked_is_refused(body: bytes) -> None:
    """For one partition with ten records."""
    with pytest.raises(ProtocolError, match="the most to be expected"):
        decode_produce_response(12, memoryview(body), 1, 10)
    decode_produce_response(12, memoryview(body))


def test_the_records_of_a_refused_answer_are_sent_again() -> None:
    cluster = ScriptedCluster({"t": [1]})
    broker = cluster.add(1)
    rig = rig_of(cluster)
    broker.next(ApiKey.PRODUCE, told.answering(PRODUCED["record errors"]))
    future = rig.queue()
    assert rig.run(lambda: future.is_done)
    assert future.succeeded()
    assert broker.count(ApiKey.PRODUCE) == 2


@pytest.mark.parametrize(
    ("decode", "version"),
    [(decode_add_partitions_response, 0), (decode_txn_offset_commit_response, 0)],
)
def test_results_of_more_partitions_than_a_transaction_has(decode: Any, version: int) -> None:
    name = struct.pack(">h", 1) + b"t"
    one = name + struct.pack(">iih", 1, 0, 0)
    two = name + struct.pack(">iihih", 2, 0, 0, 1, 0)
    for topics in ([one, one, one], [two, one], [one, two]):
        body = memoryview(struct.pack(">ii", 0, len(topics)) + b"".join(topics))
        with pytest.raises(ProtocolError, match="the most to be expected"):
            decode(version, body, 2)
        assert len(decode(version, body, 3).results) == 3


def test_a_broker_that_sends_without_end_leaves_the_others_their_turn() -> None:
    """What is not read in a turn is read in the next one, whether or not the backend says so."""
    rig = BrokerRig(RawServer(), settings=LONG)
    rig.connect()
    exchange = rig.send()
    size = 5 * READS_PER_TURN * RECEIVE_BYTES // 2
    rig.transport.deliver(answer(1, bytes(size)))
    before = rig.metrics.node(rig.broker.address.node_id).bytes_in
    for turn in range(1, 4):
        assert exchange.ends == []
        if turn == 1:
            rig.poll()
        else:
            assert rig.backend.wakes == turn - 1
            rig.broker.fire(rig.clock.now)
        read = rig.metrics.node(rig.broker.address.node_id).bytes_in - before
        assert read == min(turn * READS_PER_TURN * RECEIVE_BYTES, size + 9)
    assert exchange.ends == [("answered", bytes(size))]
