"""A record of a transaction that never gets to a partition: no commit leaves it out."""

from __future__ import annotations

import pytest

from kprod.broker import EmbeddedBroker
from kprod.confluent import KafkaError, KafkaException, Message, Producer

LONG = 30.0


BROKER = {"topics": {"t": 1}, "auto_create_topics": False}


def transactional(broker: EmbeddedBroker, timeout_ms: int) -> Producer:
    servers = {"bootstrap.servers": broker.bootstrap_servers, "transactional.id": "x"}
    producer = Producer({**servers, "message.timeout.ms": timeout_ms})
    producer.init_transactions(LONG)
    producer.begin_transaction()
    return producer


def refused(call: object, *arguments: object) -> KafkaError:
    assert callable(call)
    with pytest.raises(KafkaException) as caught:
        call(*arguments)
    error: KafkaError = caught.value.args[0]
    return error


@pytest.mark.parametrize("topic", ["no name of a topic", "missing"])
def test_a_record_that_was_lost_keeps_its_transaction_from_being_committed(
    broker: EmbeddedBroker, topic: str
) -> None:
    """librdkafka: "1 message(s) failed delivery", and the transaction must be aborted."""
    reported: list[tuple[KafkaError | None, Message]] = []
    with transactional(broker, 1_000) as producer:
        producer.produce("t", b"aborted")
        producer.produce(topic, b"lost", on_delivery=lambda *told: reported.append(told))
        assert refused(producer.commit_transaction, LONG).txn_requires_abort()
        producer.poll(0)
        ((error, _),) = reported
        assert error is not None
        producer.abort_transaction(LONG)
        producer.begin_transaction()
        producer.produce("t", b"committed")
        producer.commit_transaction(LONG)


def test_a_commit_begins_when_no_record_waits_for_its_topic_any_more(
    broker: EmbeddedBroker,
) -> None:
    with transactional(broker, 60_000) as producer:
        producer.produce("later", b"v")
        error = refused(producer.commit_transaction, 0.05)
        assert (error.name(), error.retriable()) == ("_TIMED_OUT", True)
        broker.create_topic("later", 1)
        producer.commit_transaction(LONG)
    assert [record.value for record in broker.records("later")] == [b"v"]
