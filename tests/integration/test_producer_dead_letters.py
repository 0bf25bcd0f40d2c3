"""A failed record is in the dead-letter topic once, with the reason."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from kprod import KafkaProducer, aio, confluent, kafka
from kprod.admin import read_topic
from kprod.broker import ApiKey, EmbeddedBroker, Fault
from kprod.errors import (
    BrokerError,
    ConfigError,
    KprodTimeoutError,
    PartitionError,
    RecordTooLargeError,
    SerializationError,
)
from tests.support.waiting import await_true

DLQ = "dead"
CLIENT, LETTERS = "app", "app-dead-letters"
INVALID_RECORD = 87
LONG = 30.0


BROKER = {"topics": {"orders": 2, DLQ: 1}}


def new_producer(broker: EmbeddedBroker, **options: Any) -> KafkaProducer:
    return KafkaProducer(
        bootstrap_servers=broker.bootstrap_servers,
        client_id=CLIENT,
        dead_letter_topic=DLQ,
        **options,
    )


def letters(broker: EmbeddedBroker) -> list[Any]:
    return [record for _, record in read_topic(broker.bootstrap_servers, DLQ)]


def details(letter: Any) -> dict[str, str]:
    prefix = "kprod.dlq."
    return {
        name.removeprefix(prefix): value.decode()
        for name, value in letter.headers
        if name.startswith(prefix)
    }


def counters(producer: KafkaProducer) -> tuple[float, float]:
    metrics = producer.metrics()["producer-metrics"]
    return metrics["dead-letter-total"], metrics["dead-letter-error-total"]


def refusing(broker: EmbeddedBroker, client_id: str = CLIENT) -> Any:
    fault = Fault(api=ApiKey.PRODUCE, client_id=client_id, times=None, error=INVALID_RECORD)
    return broker.faults.active(fault)


def test_a_record_refused_by_the_broker_becomes_a_dead_letter(broker: EmbeddedBroker) -> None:
    with new_producer(broker, value_serializer="json") as producer:
        with refusing(broker):
            future = producer.send("orders", {"a": 1}, b"k", [("h", b"1")], 1, 5)
            producer.flush()
            stamped = producer.send("orders", {"a": 2})
            producer.flush()
        assert isinstance(future.exception, BrokerError)
        assert counters(producer) == (2, 0)
        assert producer.send("orders", {"a": 3}).get(10).offset == 0
    letter, other = letters(broker)
    assert other.timestamp == stamped.timestamp
    assert details(other)["timestamp"] == str(stamped.timestamp)
    assert (letter.key, letter.value, letter.timestamp) == (b"k", b'{"a":1}', 5)
    assert letter.headers[0] == ("h", b"1")
    headers = details(letter)
    assert (headers["reason"], headers["topic"], headers["partition"]) == (
        "INVALID_RECORD",
        "orders",
        "1",
    )
    assert headers["timestamp"] == "5"
    assert int(headers["time"]) > 1_700_000_000_000
    assert "persisted" not in headers


def test_large_keys_and_values_are_truncated_in_dead_letters(broker: EmbeddedBroker) -> None:
    with (
        new_producer(broker, value_serializer="int", max_request_size=100_000) as producer,
        pytest.raises(RecordTooLargeError),
    ):
        producer.send("orders", 7, key=bytes(200_000))
    with new_producer(broker, max_request_size=100_000) as producer:
        with refusing(broker):
            producer.send("orders", bytes(99_850), b"key", [("h", b"1")])
            producer.flush()
        assert counters(producer) == (1, 0)
    first, second = letters(broker)
    assert (len(first.key), first.value, details(first)["truncated"]) == (16_384, b"7", "200001")
    assert (second.key, second.value) == (b"key", bytes(16_384))
    assert (details(second)["truncated"], details(second)["reason"]) == ("99853", "INVALID_RECORD")


def test_a_dead_letter_holds_a_buffer_as_it_was_when_sent(broker: EmbeddedBroker) -> None:
    buffer, view = bytearray(b"first"), memoryview(bytearray(b"seen"))
    with new_producer(broker) as producer:
        with refusing(broker):
            producer.send("orders", buffer, buffer)
            producer.send("orders", view)
            buffer[:] = b"later"
            view.release()
            producer.flush()
        assert counters(producer) == (2, 0)
    assert {(r.key, r.value) for r in letters(broker)} == {(b"first", b"first"), (None, b"seen")}


def fail_without_utf8(value: Any) -> bytes:
    raise ValueError(f"no customer \udce9 has {value}")


RECURSIVE: list[Any] = []
RECURSIVE.append(RECURSIVE)


@pytest.mark.parametrize(
    ("serializer", "value", "kept", "message"),
    [
        ("json", {("a", 1): 2}, "{('a', 1): 2}", "TypeError"),
        ("json", RECURSIVE, "[[...]]", "ValueError"),
        (fail_without_utf8, "an order", "an order", "no customer ? has an order"),
    ],
)
def test_values_that_cannot_be_encoded_are_in_the_dead_letter_as_repr(
    broker: EmbeddedBroker, serializer: Any, value: Any, kept: str, message: str
) -> None:
    with new_producer(broker, value_serializer=serializer) as producer:
        with pytest.raises(SerializationError):
            producer.send("orders", value)
        producer.flush()
        assert counters(producer) == (1, 0)
    (letter,) = letters(broker)
    assert json.loads(letter.value) == kept
    assert message in details(letter)["message"]


@pytest.mark.parametrize(
    ("value", "change", "kept"),
    [
        ({"no": "number"}, lambda value: value.clear(), b'{"no": "number"}'),
        (bytearray(b"text"), lambda value: value.clear(), b"text"),
        (memoryview(b"12345678").cast("i"), lambda value: value.release(), b"12345678"),
    ],
)
def test_a_dead_letter_holds_a_value_refused_by_send_unchanged(
    broker: EmbeddedBroker, value: Any, change: Any, kept: bytes
) -> None:
    with new_producer(broker, key_serializer="str", value_serializer="int") as producer:
        for _ in range(50):  # the first waits for the letter producer, the others for the first
            with pytest.raises(SerializationError):
                producer.send("orders", value)
        change(value)
        producer.flush()
        assert counters(producer) == (50, 0)
    assert {letter.value for letter in letters(broker)} == {kept}


@pytest.mark.parametrize(
    "invalid", [{"topic": "no such/topic"}, {"partition": -1}, {"headers": [("h", 1)]}], ids=str
)
def test_invalid_arguments_make_dead_letters(
    broker: EmbeddedBroker, invalid: dict[str, Any]
) -> None:
    with new_producer(broker) as producer:
        with pytest.raises((ValueError, TypeError)):
            producer.send(**{"topic": "orders", "value": b"1", "key": b"k", **invalid})
        producer.flush()
    (letter,) = letters(broker)
    assert (letter.key, letter.value) == (b"k", b"1")
    assert details(letter)["topic"] == invalid.get("topic", "orders")


async def test_a_failing_partitioner_under_asyncio_makes_one_letter(broker: EmbeddedBroker) -> None:
    calls: list[object] = []
    servers = broker.bootstrap_servers
    async with aio.Producer(
        bootstrap_servers=servers, dead_letter_topic=DLQ, partitioner=lambda *_: calls.append(_)
    ) as producer:
        await producer.partitions_for("orders")
        with pytest.raises(PartitionError):
            await producer.send("orders", b"1")
    assert (len(calls), len(letters(broker))) == (1, 1)


def test_a_transient_error_makes_no_dead_letter(broker: EmbeddedBroker) -> None:
    with new_producer(broker, max_block_ms=50) as producer:
        with (
            broker.faults.active(Fault(api=ApiKey.METADATA, times=None, drop=True)),
            pytest.raises(KprodTimeoutError),
        ):
            producer.send("orders", b"")
        producer.flush()
    assert letters(broker) == []


def test_records_abandoned_by_close_become_dead_letters(broker: EmbeddedBroker) -> None:
    producer = new_producer(broker, linger_ms=60_000)
    with broker.faults.active(Fault(api=ApiKey.PRODUCE, client_id=CLIENT, times=None, drop=True)):
        producer.send("orders", b"late")
        producer.close(0.2)
    await_true(lambda: letters(broker), 20)  # written in the background
    (letter,) = letters(broker)
    assert letter.value == b"late"
    assert details(letter)["reason"] == "ProducerClosedError"
    assert details(letter)["persisted"] == "maybe"


def test_a_failed_dead_letter_makes_no_other(broker: EmbeddedBroker) -> None:
    with new_producer(broker) as producer:
        with refusing(broker), refusing(broker, LETTERS):
            with pytest.raises(BrokerError):
                producer.send(DLQ, b"to the dead-letter topic").get(10)
            with pytest.raises(BrokerError):
                producer.send("orders", b"lost").get(10)
            producer.flush()
        assert counters(producer) == (0, 1)
    assert letters(broker) == []


def test_every_api_makes_dead_letters(broker: EmbeddedBroker) -> None:
    """``flush`` after ``close`` returns although no thread is left to report letters."""
    options: dict[str, Any] = {"client_id": CLIENT, "dead_letter_topic": DLQ}
    with new_producer(broker) as producer, refusing(broker):
        producer.send_many("orders", [b"1", b"2"])
        producer.flush()
    assert producer.flush(LONG).pending == 0
    native = kafka.KafkaProducer(bootstrap_servers=broker.bootstrap_servers, **options)
    with refusing(broker):
        native.send("orders", b"3")
        native.flush()
    native.close()

    async def run(producer_class: Any, value: bytes) -> None:
        async with producer_class(
            bootstrap_servers=broker.bootstrap_servers, **options
        ) as producer:
            with refusing(broker), pytest.raises(Exception, match=r"INVALID_RECORD|87"):
                await producer.send_and_wait("orders", value)
            with pytest.raises(Exception, match="partition"):
                await producer.send_and_wait("orders", b"9", partition=9)

    asyncio.run(run(aio.Producer, b"4"))
    asyncio.run(run(aio.AIOKafkaProducer, b"5"))
    found = letters(broker)
    assert sorted(letter.value for letter in found) == [b"%d" % n for n in (1, 2, 3, 4, 5, 9, 9)]
    assert {details(letter)["reason"] for letter in found} == {"INVALID_RECORD", "PartitionError"}


def test_the_confluent_producer_makes_dead_letters(broker: EmbeddedBroker) -> None:
    """Delivery reports are as without dead letters; ``flush`` waits for the letters."""
    reports: list[Any] = []
    with confluent.Producer(
        {
            "bootstrap.servers": broker.bootstrap_servers,
            "client.id": CLIENT,
            "dead.letter.topic": DLQ,
            "on_delivery": lambda error, message: reports.append((error, message.key())),
        }
    ) as producer:
        with refusing(broker):
            producer.produce("orders", "1", "a", headers={"h": "1"})
            assert producer.flush(10) == 0
        producer.produce("orders", "2", "b", partition=7)
        producer.produce("orders", "3", "c")
        assert producer.flush(10) == 0
    assert [(error and error.name(), key) for error, key in reports] == [
        ("INVALID_RECORD", b"a"),
        ("_UNKNOWN_PARTITION", b"b"),
        (None, b"c"),
    ]
    first, second = letters(broker)
    assert (first.value, first.headers[0], details(first)["reason"]) == (
        b"1",
        ("h", b"1"),
        "INVALID_RECORD",
    )
    assert (second.value, details(second)["reason"]) == (b"2", "PartitionError")


@pytest.mark.parametrize(("reason", "timeout_ms"), [("Purged", 60_000), ("KprodTimeoutError", 300)])
def test_records_of_the_confluent_producer_for_a_missing_topic_become_dead_letters(
    reason: str, timeout_ms: int
) -> None:
    with EmbeddedBroker(topics={DLQ: 1}, auto_create_topics=False) as broker:
        options = {"dead.letter.topic": DLQ, "message.timeout.ms": timeout_ms}
        servers = {"bootstrap.servers": broker.bootstrap_servers}
        with confluent.Producer({**servers, **options}) as producer:
            producer.produce("missing", "1", "a", headers={"h": "1"})
            if reason == "Purged":
                producer.purge()
            assert producer.flush(10) == 0
        (letter,) = letters(broker)
    assert (letter.key, letter.value, letter.headers[0]) == (b"a", b"1", ("h", b"1"))
    assert details(letter)["reason"] == reason


def test_dead_letters_are_not_part_of_the_transaction(broker: EmbeddedBroker) -> None:
    with new_producer(broker, transactional_id="t") as producer:
        producer.init_transactions()
        producer.begin_transaction()
        producer.send("orders", b"aborted").get(10)
        with refusing(broker), pytest.raises(BrokerError):
            producer.send("orders", b"refused").get(10)
        producer.abort_transaction()
    (letter,) = letters(broker)
    assert letter.value == b"refused"


def test_an_invalid_dead_letter_topic_is_refused() -> None:
    with pytest.raises(ConfigError, match="dead_letter_topic: expected 1 to 249"):
        KafkaProducer(dead_letter_topic="no topic")
