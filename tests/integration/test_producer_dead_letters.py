"""A record that failed for good is in the dead-letter topic, once, and says why"""

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

DEAD = "dead"
CLIENT, LETTERS = "app", "app-dead-letters"
INVALID_RECORD = 87
LONG = 30.0


BROKER = {"topics": {"orders": 2, DEAD: 1}}


def producer(broker: EmbeddedBroker, **options: Any) -> KafkaProducer:
    return KafkaProducer(
        bootstrap_servers=broker.bootstrap_servers,
        client_id=CLIENT,
        dead_letter_topic=DEAD,
        **options,
    )


def letters(broker: EmbeddedBroker) -> list[Any]:
    return [record for _, record in read_topic(broker.bootstrap_servers, DEAD)]


def told(letter: Any) -> dict[str, str]:
    prefix = "kprod.dlq."
    return {
        name.removeprefix(prefix): value.decode()
        for name, value in letter.headers
        if name.startswith(prefix)
    }


def counted(made: KafkaProducer) -> tuple[float, float]:
    metrics = made.metrics()["producer-metrics"]
    return metrics["dead-letter-total"], metrics["dead-letter-error-total"]


def refusing(broker: EmbeddedBroker, client_id: str = CLIENT) -> Any:
    fault = Fault(api=ApiKey.PRODUCE, client_id=client_id, times=None, error=INVALID_RECORD)
    return broker.faults.active(fault)


def test_what_a_broker_refuses(broker: EmbeddedBroker) -> None:
    with producer(broker, value_serializer="json") as made:
        with refusing(broker):
            future = made.send("orders", {"a": 1}, b"k", [("h", b"1")], 1, 5)
            made.flush()
            stamped = made.send("orders", {"a": 2})
            made.flush()
        assert isinstance(future.exception, BrokerError)
        assert counted(made) == (2, 0)
        assert made.send("orders", {"a": 3}).get(10).offset == 0
    letter, other = letters(broker)
    assert other.timestamp == stamped.timestamp
    assert told(other)["timestamp"] == str(stamped.timestamp)
    assert (letter.key, letter.value, letter.timestamp) == (b"k", b'{"a":1}', 5)
    assert letter.headers[0] == ("h", b"1")
    said = told(letter)
    assert (said["reason"], said["topic"], said["partition"]) == ("INVALID_RECORD", "orders", "1")
    assert said["timestamp"] == "5"
    assert int(said["time"]) > 1_700_000_000_000
    assert "persisted" not in said


def test_what_is_too_large_for_a_letter_is_cut(broker: EmbeddedBroker) -> None:
    with (
        producer(broker, value_serializer="int", max_request_size=100_000) as made,
        pytest.raises(RecordTooLargeError),
    ):
        made.send("orders", 7, key=bytes(200_000))
    with producer(broker, max_request_size=100_000) as made:
        with refusing(broker):
            made.send("orders", bytes(99_850), b"key", [("h", b"1")])
            made.flush()
        assert counted(made) == (1, 0)
    first, second = letters(broker)
    assert (len(first.key), first.value, told(first)["truncated"]) == (16_384, b"7", "200001")
    assert (second.key, second.value) == (b"key", bytes(16_384))
    assert (told(second)["truncated"], told(second)["reason"]) == ("99853", "INVALID_RECORD")


def test_a_buffer_that_changes_afterwards_is_in_the_letter_as_sent(broker: EmbeddedBroker) -> None:
    buffer, view = bytearray(b"first"), memoryview(bytearray(b"seen"))
    with producer(broker) as made:
        with refusing(broker):
            made.send("orders", buffer, buffer)
            made.send("orders", view)
            buffer[:] = b"later"
            view.release()
            made.flush()
        assert counted(made) == (2, 0)
    assert {(r.key, r.value) for r in letters(broker)} == {(b"first", b"first"), (None, b"seen")}


def no_utf8(value: Any) -> bytes:
    raise ValueError(f"no customer \udce9 has {value}")


WITHIN_ITSELF: list[Any] = []
WITHIN_ITSELF.append(WITHIN_ITSELF)


@pytest.mark.parametrize(
    ("serializer", "value", "kept", "words"),
    [
        ("json", {("a", 1): 2}, "{('a', 1): 2}", "TypeError"),
        ("json", WITHIN_ITSELF, "[[...]]", "ValueError"),
        (no_utf8, "an order", "an order", "no customer ? has an order"),
    ],
)
def test_what_no_letter_could_say_is_in_it_in_words(
    broker: EmbeddedBroker, serializer: Any, value: Any, kept: str, words: str
) -> None:
    with producer(broker, value_serializer=serializer) as made:
        with pytest.raises(SerializationError):
            made.send("orders", value)
        made.flush()
        assert counted(made) == (1, 0)
    (letter,) = letters(broker)
    assert json.loads(letter.value) == kept
    assert words in told(letter)["message"]


@pytest.mark.parametrize(
    ("value", "change", "kept"),
    [
        ({"no": "number"}, lambda value: value.clear(), b'{"no": "number"}'),
        (bytearray(b"text"), lambda value: value.clear(), b"text"),
        (memoryview(b"12345678").cast("i"), lambda value: value.release(), b"12345678"),
    ],
)
def test_what_send_refuses_is_in_the_letter_as_it_was(
    broker: EmbeddedBroker, value: Any, change: Any, kept: bytes
) -> None:
    with producer(broker, key_serializer="str", value_serializer="int") as made:
        for _ in range(50):  # the first waits for its producer, the others for the first
            with pytest.raises(SerializationError):
                made.send("orders", value)
        change(value)
        made.flush()
        assert counted(made) == (50, 0)
    assert {letter.value for letter in letters(broker)} == {kept}


@pytest.mark.parametrize(
    "wrong", [{"topic": "no such/topic"}, {"partition": -1}, {"headers": [("h", 1)]}], ids=str
)
def test_a_wrong_argument_makes_a_letter(broker: EmbeddedBroker, wrong: dict[str, Any]) -> None:
    with producer(broker) as made:
        with pytest.raises((ValueError, TypeError)):
            made.send(**{"topic": "orders", "value": b"1", "key": b"k", **wrong})
        made.flush()
    (letter,) = letters(broker)
    assert (letter.key, letter.value) == (b"k", b"1")
    assert told(letter)["topic"] == wrong.get("topic", "orders")


async def test_a_partitioner_that_fails_in_a_loop_makes_one_letter(broker: EmbeddedBroker) -> None:
    asked: list[object] = []
    servers = broker.bootstrap_servers
    async with aio.Producer(
        bootstrap_servers=servers, dead_letter_topic=DEAD, partitioner=lambda *_: asked.append(_)
    ) as loops:
        await loops.partitions_for("orders")
        with pytest.raises(PartitionError):
            await loops.send("orders", b"1")
    assert (len(asked), len(letters(broker))) == (1, 1)


def test_what_may_pass_is_no_letter(broker: EmbeddedBroker) -> None:
    with producer(broker, max_block_ms=50) as made:
        with (
            broker.faults.active(Fault(api=ApiKey.METADATA, times=None, drop=True)),
            pytest.raises(KprodTimeoutError),
        ):
            made.send("orders", b"")
        made.flush()
    assert letters(broker) == []


def test_records_that_are_given_up_at_the_end(broker: EmbeddedBroker) -> None:
    made = producer(broker, linger_ms=60_000)
    with broker.faults.active(Fault(api=ApiKey.PRODUCE, client_id=CLIENT, times=None, drop=True)):
        made.send("orders", b"late")
        made.close(0.2)
    await_true(lambda: letters(broker), 20)  # it comes in the background
    (letter,) = letters(broker)
    assert letter.value == b"late"
    assert told(letter)["reason"] == "ProducerClosedError"
    assert told(letter)["persisted"] == "maybe"


def test_never_in_circles(broker: EmbeddedBroker) -> None:
    with producer(broker) as made:
        with refusing(broker), refusing(broker, LETTERS):
            with pytest.raises(BrokerError):
                made.send(DEAD, b"mine").get(10)
            with pytest.raises(BrokerError):
                made.send("orders", b"lost").get(10)
            made.flush()
        assert counted(made) == (0, 1)
    assert letters(broker) == []


def test_every_way_of_sending(broker: EmbeddedBroker) -> None:
    """A ``flush`` after ``close`` returns: no thread is left that could tell it of letters."""
    named: dict[str, Any] = {"client_id": CLIENT, "dead_letter_topic": DEAD}
    with producer(broker) as made, refusing(broker):
        made.send_many("orders", [b"1", b"2"])
        made.flush()
    assert made.flush(LONG).pending == 0
    native = kafka.KafkaProducer(bootstrap_servers=broker.bootstrap_servers, **named)
    with refusing(broker):
        native.send("orders", b"3")
        native.flush()
    native.close()

    async def run(face: Any, value: bytes) -> None:
        async with face(bootstrap_servers=broker.bootstrap_servers, **named) as loops:
            with refusing(broker), pytest.raises(Exception, match=r"INVALID_RECORD|87"):
                await loops.send_and_wait("orders", value)
            with pytest.raises(Exception, match="partition"):
                await loops.send_and_wait("orders", b"9", partition=9)

    asyncio.run(run(aio.Producer, b"4"))
    asyncio.run(run(aio.AIOKafkaProducer, b"5"))
    found = letters(broker)
    assert sorted(letter.value for letter in found) == [b"%d" % n for n in (1, 2, 3, 4, 5, 9, 9)]
    assert {told(letter)["reason"] for letter in found} == {"INVALID_RECORD", "PartitionError"}


def test_the_confluent_face(broker: EmbeddedBroker) -> None:
    """Its delivery report says the same as without letters; ``flush`` waits for these too."""
    reports: list[Any] = []
    with confluent.Producer(
        {
            "bootstrap.servers": broker.bootstrap_servers,
            "client.id": CLIENT,
            "dead.letter.topic": DEAD,
            "on_delivery": lambda error, message: reports.append((error, message.key())),
        }
    ) as made:
        with refusing(broker):
            made.produce("orders", "1", "a", headers={"h": "1"})
            assert made.flush(10) == 0
        made.produce("orders", "2", "b", partition=7)
        made.produce("orders", "3", "c")
        assert made.flush(10) == 0
    assert [(error and error.name(), key) for error, key in reports] == [
        ("INVALID_RECORD", b"a"),
        ("_UNKNOWN_PARTITION", b"b"),
        (None, b"c"),
    ]
    first, second = letters(broker)
    assert (first.value, first.headers[0], told(first)["reason"]) == (
        b"1",
        ("h", b"1"),
        "INVALID_RECORD",
    )
    assert (second.value, told(second)["reason"]) == (b"2", "PartitionError")


@pytest.mark.parametrize(("reason", "timeout_ms"), [("Purged", 60_000), ("KprodTimeoutError", 300)])
def test_the_confluent_face_waits_for_a_topic_in_vain(reason: str, timeout_ms: int) -> None:
    with EmbeddedBroker(topics={DEAD: 1}, auto_create_topics=False) as broker:
        named = {"dead.letter.topic": DEAD, "message.timeout.ms": timeout_ms}
        servers = {"bootstrap.servers": broker.bootstrap_servers}
        with confluent.Producer({**servers, **named}) as made:
            made.produce("nowhere", "1", "a", headers={"h": "1"})
            if reason == "Purged":
                made.purge()
            assert made.flush(10) == 0
        (letter,) = letters(broker)
    assert (letter.key, letter.value, letter.headers[0]) == (b"a", b"1", ("h", b"1"))
    assert told(letter)["reason"] == reason


def test_a_letter_is_in_no_transaction(broker: EmbeddedBroker) -> None:
    with producer(broker, transactional_id="t") as made:
        made.init_transactions()
        made.begin_transaction()
        made.send("orders", b"aborted").get(10)
        with refusing(broker), pytest.raises(BrokerError):
            made.send("orders", b"refused").get(10)
        made.abort_transaction()
    (letter,) = letters(broker)
    assert letter.value == b"refused"


def test_a_topic_that_cannot_be() -> None:
    with pytest.raises(ConfigError, match="dead_letter_topic: expected 1 to 249"):
        KafkaProducer(dead_letter_topic="no topic")
