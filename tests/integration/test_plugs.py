"""What is chosen by name or plugged in works from ``send`` to the log, and is closed in the end."""

from __future__ import annotations

import threading
from queue import SimpleQueue
from typing import Any

from kprod import KafkaProducer, ProducerRecord, RecordMetadata
from kprod.admin import read_topic
from kprod.broker import EmbeddedBroker

TIMEOUT = 30


BROKER = {"topics": {"turns": 3, "alerts": 1, "logs": 1, "closing": 1}}


def producer_for(broker: EmbeddedBroker, **options: Any) -> KafkaProducer:
    return KafkaProducer(bootstrap_servers=broker.bootstrap_servers, **options)


def test_partitions_by_turns(broker: EmbeddedBroker) -> None:
    with producer_for(broker, partitioner="round_robin") as producer:
        futures = [producer.send("turns", b"", key=b"same") for _ in range(6)]
        assert [future.get(TIMEOUT).partition for future in futures] == [0, 1, 2, 0, 1, 2]


def test_options_of_a_topic(broker: EmbeddedBroker) -> None:
    own = {"alerts": {"linger_ms": 0, "compression_type": "gzip", "acks": 0}}
    with producer_for(
        broker, linger_ms=60_000, acks=1, topic_options=own, delivery_timeout_ms=120_000
    ) as producer:
        log = producer.send("logs", b"later")
        done: SimpleQueue[RecordMetadata] = SimpleQueue()
        producer.send("alerts", b"now" * 100).add_callback(done.put)
        assert done.get(timeout=TIMEOUT).offset == -1  # nobody told
        assert not log.is_done
        producer.flush(TIMEOUT)
        assert log.get(0).offset == 0
    (found,) = read_topic(broker.bootstrap_servers, "alerts")
    assert found[1].value == b"now" * 100


class Everything:
    """Serializer, partitioner and interceptor in one; tells what it was asked to do."""

    def __init__(self) -> None:
        self.calls: list[str] = []
        self.closed = threading.Event()

    def serialize(self, topic: str, headers: Any, data: Any) -> bytes:
        self.calls.append("serialize")
        return b""

    def choose(self, topic: Any, key: Any) -> int:
        self.calls.append("choose")
        return 0

    def appended(self, topic: Any, partition: int, nbytes: int, batch_ready: bool) -> None:
        self.calls.append("appended")

    def on_acknowledgement(self, metadata: RecordMetadata) -> None:
        self.calls.append("acknowledged")

    def on_send_error(self, record: ProducerRecord, error: BaseException) -> None:
        self.calls.append("failed")

    def close(self) -> None:
        self.calls.append("close")
        self.closed.set()


def with_everything(broker: EmbeddedBroker, plug: Everything, **options: Any) -> KafkaProducer:
    return producer_for(
        broker,
        key_serializer=plug,
        value_serializer=plug,
        partitioner=plug,
        interceptors=[plug],
        **options,
    )


def test_what_is_plugged_in_is_closed_once_and_last(broker: EmbeddedBroker) -> None:
    plug = Everything()
    producer = with_everything(broker, plug, linger_ms=50)
    producer.send("closing", b"")
    producer.close()
    producer.close()
    assert plug.calls == ["serialize", "serialize", "choose", "appended", "acknowledged", "close"]
