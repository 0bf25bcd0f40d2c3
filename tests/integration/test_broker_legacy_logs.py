"""A data directory from the days of message formats 0 and 1, served to the clients of today."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Consumer

from kprod import KafkaProducer
from kprod.admin import read_topic
from kprod.broker import EmbeddedBroker
from tests.support.legacy_messages import legacy_message, legacy_wrapper

with warnings.catch_warnings():
    # It reads its message schemas with a function that Python 3.11 deprecates.
    warnings.simplefilter("ignore", DeprecationWarning)
    from kafka import KafkaConsumer, TopicPartition

OLD = [
    legacy_message(0, b"0", 0),
    legacy_wrapper(1, [b"1", b"2", b"3"], 0, codec=1),
    legacy_wrapper(4, [b"4", b"5"], 1, codec=3),
    legacy_message(6, b"6", 1),
    legacy_wrapper(7, [b"7", b"8", b"9"], 1, codec=1),
]
EXPECTED = [(n, b"%d" % n) for n in range(20)]


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[EmbeddedBroker]:
    """Ten old messages, and ten records of today behind them."""
    broker = EmbeddedBroker(tmp_path, topics={"t": 1})
    with broker:
        pass
    for index in (tmp_path / "t-0").glob("*.*index"):
        index.unlink()
    (tmp_path / "t-0" / f"{0:020d}.log").write_bytes(b"".join(OLD))
    with broker:
        with KafkaProducer(bootstrap_servers=broker.bootstrap_servers) as producer:
            for number in range(10, 20):
                producer.send("t", b"%d" % number)
        yield broker
    stored = (tmp_path / "t-0" / f"{0:020d}.log").read_bytes()
    assert stored.startswith(b"".join(OLD))


def test_our_readers(broker: EmbeddedBroker) -> None:
    assert [(r.offset, r.value) for r in broker.records("t")] == EXPECTED
    assert [(r.offset, r.value) for r in broker.records("t", committed=True)] == EXPECTED
    found = read_topic(broker.bootstrap_servers, "t")
    assert [(r.offset, r.value) for _, r in found] == EXPECTED


def test_librdkafka(broker: EmbeddedBroker) -> None:
    consumer = Consumer(
        {
            "bootstrap.servers": broker.bootstrap_servers,
            "group.id": "g",
            "auto.offset.reset": "earliest",
        }
    )
    consumer.subscribe(["t"])
    found = consumer.consume(len(EXPECTED), timeout=30)
    assert [(message.offset(), message.value()) for message in found] == EXPECTED
    consumer.close()


@pytest.mark.filterwarnings("ignore::DeprecationWarning:kafka")
def test_kafka_python(broker: EmbeddedBroker) -> None:
    consumer = KafkaConsumer(
        bootstrap_servers=broker.bootstrap_servers,
        auto_offset_reset="earliest",
        consumer_timeout_ms=30_000,
    )
    partition = TopicPartition("t", 0)
    consumer.assign([partition])
    assert consumer.offsets_for_times({partition: 5})[partition].offset == 5
    consumer.seek(partition, 2)
    found = [next(consumer) for _ in EXPECTED[2:]]
    assert [(record.offset, record.value) for record in found] == EXPECTED[2:]
    consumer.close()
