"""kafka-python, as producer and consumer, against the embedded broker."""

from __future__ import annotations

import warnings
from collections.abc import Iterator

import pytest

from kprod.admin import read_topic
from kprod.broker import EmbeddedBroker
from tests.support.telling_records import TellingRecord, by_partition, telling_records

with warnings.catch_warnings():
    # It reads its message schemas with a function that Python 3.11 deprecates.
    warnings.simplefilter("ignore", DeprecationWarning)
    from kafka import KafkaConsumer, KafkaProducer, TopicPartition
    from kafka.errors import MessageSizeTooLargeError

pytestmark = [
    pytest.mark.filterwarnings("ignore::DeprecationWarning:kafka"),
]
PARTITIONS = 3


@pytest.fixture(scope="module")
def broker() -> Iterator[EmbeddedBroker]:
    with EmbeddedBroker(default_partitions=PARTITIONS) as broker:
        yield broker


@pytest.mark.parametrize("idempotent", [True, False])
@pytest.mark.parametrize("codec", [None, "gzip", "lz4", "zstd"])
def test_what_it_sends_it_gets_back(
    broker: EmbeddedBroker, codec: str | None, idempotent: bool
) -> None:
    topic = f"sent-{codec}-{idempotent}"
    records = [record for record in telling_records(PARTITIONS) if sendable(record)]
    producer = KafkaProducer(
        bootstrap_servers=broker.bootstrap_servers,
        compression_type=codec,
        enable_idempotence=idempotent,
        acks="all" if idempotent else 1,
        linger_ms=5,
    )
    places = [
        producer.send(
            topic,
            value=record.value,
            key=record.key,
            headers=list(record.headers),
            partition=record.partition,
            timestamp_ms=record.timestamp,
        )
        for record in records
    ]
    metadata = [place.get(20) for place in places]
    producer.close()
    sent = by_partition(records, PARTITIONS)
    for number in range(PARTITIONS):
        offsets = [m.offset for m in metadata if m.partition == number]
        assert offsets == list(range(len(sent[number])))

    assert by_partition(consume(broker, topic, len(records)), PARTITIONS) == sent
    stored = [
        TellingRecord(number, *record[1:])
        for number, record in read_topic(broker.bootstrap_servers, topic)
    ]
    assert by_partition(stored, PARTITIONS) == sent


def sendable(record: TellingRecord) -> bool:
    """It refuses null headers, and records without key and value."""
    headers = [value for _, value in record.headers]
    return None not in headers and (record.key, record.value) != (None, None)


def consume(broker: EmbeddedBroker, topic: str, count: int) -> list[TellingRecord]:
    consumer = KafkaConsumer(
        bootstrap_servers=broker.bootstrap_servers,
        auto_offset_reset="earliest",
        enable_auto_commit=False,
        check_crcs=True,
    )
    consumer.assign([TopicPartition(topic, number) for number in range(PARTITIONS)])
    found: list[TellingRecord] = []
    try:
        while len(found) < count:
            for batch in consumer.poll(timeout_ms=1_000).values():
                found += [
                    TellingRecord(r.partition, r.timestamp, r.key, r.value, tuple(r.headers))
                    for r in batch
                ]
    finally:
        consumer.close()
    return found


def test_without_acks_it_is_stored_all_the_same(broker: EmbeddedBroker) -> None:
    producer = KafkaProducer(
        bootstrap_servers=broker.bootstrap_servers, acks=0, enable_idempotence=False
    )
    for number in range(100):
        producer.send("acks-0", b"%d" % number, partition=0)
    producer.flush(20)
    producer.close()
    assert len(consume(broker, "acks-0", 100)) == 100


def test_offsets_by_time_and_at_the_ends(broker: EmbeddedBroker) -> None:
    producer = KafkaProducer(bootstrap_servers=broker.bootstrap_servers)
    for number in range(10):
        producer.send("times", b"x", partition=1, timestamp_ms=1_000 + number * 10)
    producer.flush(20)
    producer.close()
    where = TopicPartition("times", 1)
    consumer = KafkaConsumer(bootstrap_servers=broker.bootstrap_servers)
    try:
        assert consumer.beginning_offsets([where]) == {where: 0}
        assert consumer.end_offsets([where]) == {where: 10}
        found = consumer.offsets_for_times({where: 1_041})[where]
        assert (found.offset, found.timestamp) == (5, 1_050)
    finally:
        consumer.close()


def test_a_record_beyond_the_limit_is_refused(broker: EmbeddedBroker) -> None:
    producer = KafkaProducer(bootstrap_servers=broker.bootstrap_servers, max_request_size=3_000_000)
    with pytest.raises(MessageSizeTooLargeError):
        producer.send("large", b"x" * 2_000_000).get(20)
    producer.close()
