"""RecordingProducer validates, serializes and partitions records as KafkaProducer does."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from kprod import BrokerError, IllegalStateError, KafkaProducer, KprodError, ProducerClosedError
from kprod.broker import EmbeddedBroker
from kprod.testing import RecordingProducer
from kprod.types import RecordMetadata

OPTIONS: dict[str, Any] = {
    "key_serializer": "str",
    "value_serializer": "json",
    "max_request_size": 10_000,
}
CALLS: list[dict[str, Any]] = [
    {"value": {"id": 7}, "key": "customer-1"},
    {"value": None, "key": "customer-2", "headers": {"h": b"x", "null": None}},
    {"value": [1, 2], "partition": 3, "timestamp_ms": 77},
    {"value": "ä", "key": "", "headers": [("h", b"1"), ("h", b"2")]},
]
INVALID: list[dict[str, Any]] = [
    {"topic": "no such/topic"},
    {"topic": 7},
    {"value": {1, 2}},
    {"value": "x" * 20_000},
    {"value": 1, "key": 7},
    {"value": 1, "headers": {"h": "text"}},
    {"value": 1, "partition": -1},
    {"value": 1, "timestamp_ms": 1.5},
]


def test_recorded_records_equal_those_stored_by_a_broker() -> None:
    recording = RecordingProducer(partitions=4, **OPTIONS)
    kept = [recording.send("t", **call).get(timeout=0) for call in CALLS]
    with (
        EmbeddedBroker(topics={"t": 4}) as broker,
        KafkaProducer(bootstrap_servers=broker.bootstrap_servers, **OPTIONS) as producer,
    ):
        stored = [producer.send("t", **call).get(timeout=30) for call in CALLS]
        found = broker.records("t")
    for ours, theirs in zip(kept, stored, strict=True):
        assert ours._replace(timestamp=0) == theirs._replace(timestamp=0)
    assert sorted(
        (record.key or b"", record.value or b"", record.headers) for record in found
    ) == sorted(
        (record.key or b"", record.value or b"", record.headers) for record in recording.records
    )
    assert recording.records[2].timestamp_ms == 77


@pytest.mark.parametrize("invalid", INVALID, ids=str)
def test_invalid_records_raise_the_same_error_and_are_not_recorded(invalid: dict[str, Any]) -> None:
    call = {"topic": "t", **invalid}
    recording = RecordingProducer(**OPTIONS)
    with pytest.raises(KprodError) as ours:
        recording.send(**call)
    with (
        EmbeddedBroker(topics={"t": 1}) as broker,
        KafkaProducer(bootstrap_servers=broker.bootstrap_servers, **OPTIONS) as producer,
        pytest.raises(KprodError) as theirs,
    ):
        producer.send(**call)
    assert type(ours.value) is type(theirs.value)
    assert str(ours.value) == str(theirs.value)
    assert recording.records == []


def test_an_unknown_partition_is_refused() -> None:
    producer = RecordingProducer(partitions=2, topics={"wide": 5})
    assert producer.send("wide", b"v", partition=4).get(timeout=0).partition == 4
    with pytest.raises(KprodError, match="partition 4"):
        producer.send("t", b"v", partition=4)
    assert producer.partitions_for("t") == {0, 1}


def test_a_test_can_complete_or_fail_records() -> None:
    refused = BrokerError(29)
    errors: list[Any] = []
    producer = RecordingProducer(completes=False)
    futures = [producer.send("t", b"%d" % number) for number in range(4)]
    futures[1].add_errback(errors.append)
    assert not futures[0].is_done
    producer.complete()
    producer.fail(refused)
    producer.fail_next(refused)
    producer.complete(2)
    assert [future.succeeded() for future in futures] == [True, False, False, True]
    assert [error.code for error in errors] == [29]  # each callback gets a copy
    assert [record.offset for record in producer.records] == [0, None, None, 1]
    assert [record.error for record in producer.records] == [None, refused, refused, None]
    assert (producer.flush().delivered, producer.flush().failed) == (2, 2)


def test_flush_and_close_complete_open_records_and_close_plugins() -> None:
    calls: list[str] = []
    plugin = SimpleNamespace(
        on_acknowledgement=lambda _: calls.append("stored"), close=lambda: calls.append("closed")
    )
    options: dict[str, Any] = {"interceptors": [plugin]}
    with RecordingProducer(completes=False, **options) as producer:
        future = producer.send("t", b"v")
        with pytest.raises(IllegalStateError, match="1 records"):
            producer.clear()
        assert producer.flush().delivered == 1
        assert future.succeeded()
        producer.clear()
        assert producer.records == []
        later = producer.send("t", b"v")
    assert later.get(timeout=0).offset == 1
    producer.close()
    assert calls == ["stored", "stored", "closed"]
    with pytest.raises(ProducerClosedError):
        producer.send("t", b"v")


def test_callbacks_are_called_as_by_kafka_producer() -> None:
    calls: list[tuple[RecordMetadata, Exception | None]] = []
    refused = BrokerError(29)
    with RecordingProducer(completes=False) as producer:
        for _ in range(2):
            producer.send("t", b"v", callback=lambda *outcome: calls.append(outcome))
        producer.complete()
        producer.fail(refused)
        with pytest.raises(TypeError, match="callback"):
            producer.send("t", b"v", callback="no function")  # type: ignore[arg-type]
    (stored, none), (failed, error) = calls
    assert (stored.topic_partition, stored.offset, none) == (("t", 0), 0, None)
    assert (failed.topic_partition, failed.offset) == (("t", 0), -1)
    assert isinstance(error, BrokerError)


@pytest.mark.parametrize("options", [{}, {"partitioner": "crc32"}], ids=str)
def test_an_invalid_list_is_refused_as_a_whole(options: dict[str, Any]) -> None:
    recording = RecordingProducer(**options)
    for invalid in ([b"a", 5], [b"a", bytes(2 << 20)]):
        with pytest.raises(KprodError, match="record 1"):
            recording.send_many("t", invalid)
    assert recording.records == []
