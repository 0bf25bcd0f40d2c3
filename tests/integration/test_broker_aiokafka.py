"""aiokafka, as producer and consumer, against the embedded broker."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition

from kprod.broker import EmbeddedBroker
from tests.support.telling_records import TellingRecord, by_partition, telling_records

PARTITIONS = 3


@pytest.fixture(scope="module")
def broker() -> Iterator[EmbeddedBroker]:
    with EmbeddedBroker(default_partitions=PARTITIONS) as broker:
        yield broker


@pytest.mark.parametrize("idempotent", [True, False])
@pytest.mark.parametrize("codec", [None, "gzip", "snappy", "lz4", "zstd"])
def test_what_it_sends_it_gets_back(
    broker: EmbeddedBroker, codec: str | None, idempotent: bool
) -> None:
    topic = f"sent-{codec}-{idempotent}"
    # It refuses to send a record without key and value.
    records = [r for r in telling_records(PARTITIONS) if (r.key, r.value) != (None, None)]
    found = asyncio.run(send_and_consume(broker, topic, codec, idempotent, records))
    assert by_partition(found, PARTITIONS) == by_partition(records, PARTITIONS)


async def send_and_consume(
    broker: EmbeddedBroker,
    topic: str,
    codec: str | None,
    idempotent: bool,
    records: list[TellingRecord],
) -> list[TellingRecord]:
    async with AIOKafkaProducer(
        bootstrap_servers=broker.bootstrap_servers,
        compression_type=codec,
        enable_idempotence=idempotent,
        acks="all" if idempotent else 1,
        max_request_size=1_048_000,
    ) as producer:
        sent = [
            await producer.send(
                topic,
                value=record.value,
                key=record.key,
                partition=record.partition,
                timestamp_ms=record.timestamp,
                headers=list(record.headers),
            )
            for record in records
        ]
        await asyncio.gather(*sent)
    async with AIOKafkaConsumer(
        bootstrap_servers=broker.bootstrap_servers, auto_offset_reset="earliest"
    ) as consumer:
        consumer.assign([TopicPartition(topic, number) for number in range(PARTITIONS)])
        found: list[TellingRecord] = []
        while len(found) < len(records):
            for batch in (await consumer.getmany(timeout_ms=1_000)).values():
                found += [
                    TellingRecord(r.partition, r.timestamp, r.key, r.value, tuple(r.headers))
                    for r in batch
                ]
    return found
