"""Transactions of confluent-kafka on the embedded broker."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from confluent_kafka import Producer, TopicPartition

from kprod.broker import EmbeddedBroker, TransactionConfig
from tests.support.confluent_consumer import confluent_consumer, read

COMMITTED = {"isolation_level": "read_committed"}


@pytest.fixture(scope="module", params=[2, 0], ids=["v2", "v0"])
def broker(request: pytest.FixtureRequest) -> Iterator[EmbeddedBroker]:
    config = TransactionConfig(transaction_version=request.param)
    with EmbeddedBroker(default_partitions=2, transaction_config=config) as broker:
        yield broker


def values(broker: EmbeddedBroker, topic: str, *, committed: bool = True) -> list[bytes | None]:
    return [record.value for record in broker.records(topic, committed=committed)]


def confluent_producer(broker: EmbeddedBroker, name: str, timeout_ms: int = 60_000) -> Producer:
    producer = Producer(
        {
            "bootstrap.servers": broker.bootstrap_servers,
            "transactional.id": name,
            "transaction.timeout.ms": timeout_ms,
        }
    )
    producer.init_transactions(20)
    return producer


def test_confluent_consumes_transforms_and_produces(broker: EmbeddedBroker) -> None:
    source, target = "source", "target"
    servers = broker.bootstrap_servers
    feeder = Producer({"bootstrap.servers": servers})
    for number in range(20):
        feeder.produce(source, b"%d" % number, partition=number % 2)
    assert feeder.flush(20) == 0
    done = 0
    for round_number in range(4):
        producer = confluent_producer(broker, "transformer")
        consumer = confluent_consumer(servers, source, group="transformers", **COMMITTED)
        batch = read(consumer, 5)
        producer.begin_transaction()
        for value in batch:
            producer.produce(target, (value or b"") + b"!", partition=0)
        positions = consumer.position(consumer.assignment())
        producer.send_offsets_to_transaction(positions, consumer.consumer_group_metadata(), 20)
        if round_number == 1:
            producer.abort_transaction(20)
        else:
            producer.commit_transaction(20)
            done += len(batch)
        consumer.close()
    found = [int((value or b"").rstrip(b"!")) for value in values(broker, target)]
    assert len(found) == len(set(found)) == done == 15
    committed = confluent_consumer(servers, group="transformers")
    ends = committed.committed([TopicPartition(source, n) for n in range(2)], 20)
    assert sum(max(end.offset, 0) for end in ends) == 15
    committed.close()


def test_a_transaction_survives_the_stop_of_its_coordinator() -> None:
    with EmbeddedBroker(nodes=3, topics={"t": 3}) as broker:
        producer = confluent_producer(broker, "moved")
        for number in range(3):
            producer.begin_transaction()
            producer.produce("t", b"%d" % number, partition=number)
            producer.flush(20)
            if number == 1:
                before = broker.leader("__transaction_state", 0)
                broker.stop_node(before)
                assert broker.leader("__transaction_state", 0) != before
            producer.commit_transaction(20)
        assert values(broker, "t") == [b"0", b"1", b"2"]
        broker.kill()
        broker.start()
        assert values(broker, "t") == [b"0", b"1", b"2"]
