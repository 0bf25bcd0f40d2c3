"""Apache Kafka decodes kprod's batches, and its errors reach the application."""

from __future__ import annotations

from typing import Any

import pytest

from kprod import KafkaProducer
from kprod.errors import BrokerError, DeliveryTimeoutError, KprodTimeoutError, RecordTooLargeError
from kprod.records.record_batch import read_batches
from kprod.types import Persisted
from tests.integration.conftest import SharedKafka
from tests.support.apache_kafka.broker import ApacheKafka
from tests.support.apache_kafka.jars import NEWEST, OLDER_TOO
from tests.support.committed_records import read_back
from tests.support.topic_admin import TopicAdmin

CODECS = ["none", "gzip", "snappy", "lz4", "zstd"]
LARGE: Any = {"batch_size": 700_000, "linger_ms": 60_000}
"""A batch of many snappy and LZ4 blocks."""
RECREATED_AT = 5_000
SHORT_TIMEOUTS: Any = {"delivery_timeout_ms": 4_000, "request_timeout_ms": 3_900}
"""Long enough for a response on a busy machine: without one a record may be stored."""


@pytest.fixture(scope="module", params=[NEWEST, OLDER_TOO])
def kafka(request: pytest.FixtureRequest, shared_kafka: SharedKafka) -> ApacheKafka:
    return shared_kafka(request.param)


@pytest.fixture
def admin(kafka: ApacheKafka) -> TopicAdmin:
    return TopicAdmin(kafka.bootstrap_servers)


@pytest.mark.parametrize("codec", CODECS)
def test_the_broker_decodes_every_codec(kafka: ApacheKafka, admin: TopicAdmin, codec: Any) -> None:
    """One topic keeps the batches; for the other the broker decompresses every record."""
    topics = {f"{codec}-kept": "producer", f"{codec}-unpacked": "uncompressed"}
    values = [b"%d " % number * (number % 100) for number in range(2_000)]
    stored = {}
    for topic, compression in topics.items():
        admin.create(topic, 1, compression_type=compression)
        with KafkaProducer(
            bootstrap_servers=kafka.bootstrap_servers, compression_type=codec, **LARGE
        ) as producer:
            futures = [producer.send(topic, value) for value in values]
            producer.flush(timeout=30)
        assert [future.get(timeout=0).offset for future in futures] == list(range(2_000))
        log = b"".join(segment.read_bytes() for segment in kafka.segments(topic, 0))
        stored[compression] = list(read_batches(log))

    assert {batch.codec for batch in stored["producer"]} == {CODECS.index(codec)}
    assert {batch.codec for batch in stored["uncompressed"]} == {0}
    for batches in stored.values():
        assert [record.value for batch in batches for record in batch.records()] == values


def test_the_timeout_error_names_an_unknown_topic(kafka: ApacheKafka) -> None:
    with (
        KafkaProducer(bootstrap_servers=kafka.bootstrap_servers, max_block_ms=1_000) as producer,
        pytest.raises(KprodTimeoutError, match=r"'missing'.*UNKNOWN_TOPIC_OR_PARTITION"),
    ):
        producer.send("missing", b"value")


def test_only_a_record_too_large_for_its_topic_fails(kafka: ApacheKafka, admin: TopicAdmin) -> None:
    admin.create("narrow", 1, max_message_bytes=2_000)
    values = [b"%d" % number * 50 for number in range(100)]
    values[50] = b"x" * 5_000
    with KafkaProducer(bootstrap_servers=kafka.bootstrap_servers, linger_ms=50) as producer:
        futures = [producer.send("narrow", value) for value in values]
        producer.flush(timeout=30)

    assert [n for n, future in enumerate(futures) if future.failed()] == [50]
    assert isinstance(futures[50].exception, RecordTooLargeError)
    assert "max.message.bytes" in str(futures[50].exception)
    found = [record.value for record in read_back(kafka.bootstrap_servers, "narrow", 1)]
    assert found == values[:50] + values[51:]


def test_a_compacted_topic_refuses_a_record_without_a_key(
    kafka: ApacheKafka, admin: TopicAdmin
) -> None:
    admin.create("compacted", 1, cleanup_policy="compact")
    with KafkaProducer(bootstrap_servers=kafka.bootstrap_servers) as producer:
        with pytest.raises(BrokerError, match=r"INVALID_RECORD \(87\): compacted-0: .*key"):
            producer.send("compacted", b"value").get(timeout=30)
        producer.send("compacted", b"value", key=b"key").get(timeout=30)


def test_records_for_a_deleted_topic_expire_with_the_reason(
    kafka: ApacheKafka, admin: TopicAdmin
) -> None:
    admin.create("deleted", 2)
    with KafkaProducer(bootstrap_servers=kafka.bootstrap_servers, **SHORT_TIMEOUTS) as producer:
        before = [producer.send("deleted", b"before") for _ in range(1_000)]
        producer.flush(timeout=30)
        admin.delete("deleted")
        # A batch stored before the broker knows of the deletion is refused with its offset, as
        # UNKNOWN_TOPIC_OR_PARTITION: its outcome is MAYBE.
        admin.await_gone("deleted")
        after = [producer.send("deleted", b"after", partition=n % 2) for n in range(1_000)]
        report = producer.flush(timeout=30)

    assert all(future.succeeded() for future in before)
    assert (report.delivered, report.failed, report.pending) == (1_000, 1_000, 0)
    for future in after:
        error = future.exception
        assert isinstance(error, DeliveryTimeoutError)
        # The time may run out between the last attempt and its response: nobody knows what that
        # attempt did.
        unanswered = "its last attempt is unanswered" in str(error)
        assert error.persisted is (Persisted.MAYBE if unanswered else Persisted.NO)
        assert "UNKNOWN_TOPIC" in str(error)


def test_records_are_delivered_to_a_recreated_topic(kafka: ApacheKafka, admin: TopicAdmin) -> None:
    """Records sent afterwards are delivered; those in flight may be in either topic.

    Requests name a topic by id in Kafka 4 and by name in Kafka 3, which may store a batch in the
    new topic after it refused the previous batch.
    """
    admin.create("renewed", 2)
    with KafkaProducer(bootstrap_servers=kafka.bootstrap_servers, batch_size=512) as producer:
        futures = []
        for number in range(RECREATED_AT * 4):
            if number == RECREATED_AT:
                admin.delete("renewed")
                admin.create("renewed", 2)
            futures.append(producer.send("renewed", b"%d" % number, partition=number % 2))
        producer.flush(timeout=60)

    failed = [future.exception for future in futures if future.failed()]
    assert all(error is not None and error.persisted is Persisted.MAYBE for error in failed)
    stored = read_back(kafka.bootstrap_servers, "renewed", 2)
    found = [[int(r.value or b"-1") for r in stored if r.partition == p] for p in range(2)]
    acknowledged = {n for n, future in enumerate(futures) if future.succeeded()}
    assert acknowledged - {*found[0], *found[1]} <= set(range(RECREATED_AT))
    for numbers in found:
        assert len(numbers) == len(set(numbers))
        if kafka.version == NEWEST:
            assert numbers == list(range(numbers[0], RECREATED_AT * 4, 2))
