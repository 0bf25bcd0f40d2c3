"""Whatever is wrong with a record is told before anything is queued, and changes nothing."""

from __future__ import annotations

import mmap
import threading
from collections.abc import Iterator
from contextlib import suppress
from types import SimpleNamespace
from typing import Any

import pytest

from kprod import KafkaProducer
from kprod.errors import (
    InvalidRecordError,
    InvalidTopicError,
    KprodError,
    KprodTimeoutError,
    PartitionError,
    ProducerClosedError,
    RecordTooLargeError,
    RecordTypeError,
    SerializationError,
)
from tests.support.scripted_cluster import ScriptedBroker
from tests.support.scripted_producer import producer_before

LONG = 20.0


@pytest.fixture
def producer(broker: ScriptedBroker) -> Iterator[KafkaProducer]:
    with producer_before(broker.cluster, linger_ms=0) as made:
        made.send("t", b"before").get(LONG)
        yield made


def state(producer: KafkaProducer) -> dict[str, float]:
    """Everything that a record without an outcome would change."""
    counters = producer.metrics()["producer-metrics"]
    moved_by_time = ("-rate", "-avg", "-max", "-age")
    return {name: value for name, value in counters.items() if not name.endswith(moved_by_time)}


BAD: list[tuple[str, type[KprodError], dict[str, Any]]] = [
    ("topic", InvalidTopicError, {"topic": "no spaces"}),
    ("key", SerializationError, {"key": ["list"]}),
    ("headers[0]", RecordTypeError, {"headers": [("h", "text")]}),
    ("partition", PartitionError, {"partition": -1}),
    ("timestamp_ms", InvalidRecordError, {"timestamp_ms": -1}),
    ("max_request_size", RecordTooLargeError, {"value": bytes(1_100_000)}),
]


@pytest.mark.parametrize(("named", "kind", "arguments"), BAD)
def test_a_bad_argument_is_named_and_leaves_no_trace(
    producer: KafkaProducer, named: str, kind: type[KprodError], arguments: dict[str, Any]
) -> None:
    before = state(producer)
    with pytest.raises(kind) as caught:
        producer.send(**{"topic": "t", "value": b"v", **arguments})
    assert named in str(caught.value)
    assert state(producer) == before
    assert producer.flush(LONG).pending == 0
    assert producer.send("t", b"after").get(LONG).offset >= 0


def test_a_record_too_large_for_all_memory_is_refused_at_once(broker: ScriptedBroker) -> None:
    with producer_before(broker.cluster, buffer_memory=20_000, batch_size=1000) as producer:
        with pytest.raises(RecordTooLargeError, match=r"more than buffer_memory \(20000\)"):
            producer.send("t", bytes(30_000))
        assert broker.connections == 0, "it is refused before anybody is asked anything"


def test_a_partition_the_topic_does_not_have_is_refused_with_those_it_has(
    broker: ScriptedBroker,
) -> None:
    with producer_before(broker.cluster) as producer:
        with pytest.raises(PartitionError, match=r"'t' has no partition 7: it has 2 partitions"):
            producer.send("t", b"v", partition=7)
        assert state(producer)["buffer-available-bytes"] == state(producer)["buffer-total-bytes"]


def test_a_topic_nobody_knows_is_refused_in_time(broker: ScriptedBroker) -> None:
    with producer_before(broker.cluster, max_block_ms=50) as producer:
        with pytest.raises(KprodTimeoutError, match=r"topic 'unknown' within 0\.05 s"):
            producer.partitions_for("unknown")
        with pytest.raises(InvalidTopicError):
            producer.partitions_for("not a topic")
        assert producer.partitions_for("t") == {0, 1}


def test_without_time_to_wait_a_topic_becomes_known_all_the_same(broker: ScriptedBroker) -> None:
    with producer_before(broker.cluster, max_block_ms=0) as producer:
        with pytest.raises(KprodTimeoutError):
            producer.send("t", b"v")
        pause = threading.Event()
        for _ in range(10_000):
            with suppress(KprodTimeoutError):
                assert producer.send("t", b"v").get(LONG).offset == 0
                return
            pause.wait(0.001)
    raise AssertionError("the topic never became known")


def test_a_record_beyond_what_the_format_can_hold(broker: ScriptedBroker) -> None:
    heard: list[Any] = []
    witness = SimpleNamespace(on_send_error=lambda record, error: heard.append(error))
    options: dict[str, Any] = {"max_request_size": 2**31 - 1, "buffer_memory": 2**40}
    untouched = memoryview(mmap.mmap(-1, 2**30 + 1))  # takes no memory until it is read
    with producer_before(broker.cluster, interceptors=[witness], **options) as producer:
        with pytest.raises(RecordTooLargeError, match=r"topic 't'.*2 GiB") as refused:
            producer.send("t", untouched, key=untouched)
        assert heard == [refused.value]
        assert producer.flush(LONG).pending == 0


@pytest.mark.parametrize("call", ["send", "partitions_for"])
def test_a_closed_producer_refuses(producer: KafkaProducer, call: str) -> None:
    producer.close()
    before = state(producer)
    with pytest.raises(ProducerClosedError):
        getattr(producer, call)("t")
    assert state(producer) == before


@pytest.mark.parametrize("call", ["flush", "close"])
def test_a_time_limit_that_cannot_be_is_refused(producer: KafkaProducer, call: str) -> None:
    wrong: list[tuple[Any, type[Exception]]] = [
        *((seconds, ValueError) for seconds in (-1, float("nan"), 10**18)),
        ("1", TypeError),
    ]
    for timeout, natural in wrong:
        with pytest.raises(KprodError, match=f"{call}: timeout") as caught:
            getattr(producer, call)(timeout)
        assert isinstance(caught.value, natural)
    assert producer.send("t", b"still open").get(LONG).offset >= 0
