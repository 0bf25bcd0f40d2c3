"""What retention and compaction keep, compared with Apache Kafka on the same batches."""

from __future__ import annotations

import random
import time
from collections.abc import Iterator
from typing import Any

import pytest

from kprod.admin import read_topic
from kprod.broker import ApiKey, EmbeddedBroker
from kprod.broker.records.batch_writer import write_batch
from tests.integration.conftest import SharedKafka
from tests.support.apache_kafka.jars import NEWEST
from tests.support.topic_admin import TopicAdmin
from tests.support.wire_client import WireClient

pytestmark = pytest.mark.full
RECORDS = 100_000
KEYS = 5_000
BATCH = 100
SEGMENT = 1_048_576
PATIENCE = 120
COMMON = {"segment.bytes": SEGMENT, "file.delete.delay.ms": 100, "retention.ms": -1}
TOPICS: dict[str, dict[str, str | int]] = {
    "cleaned-compacted": {"cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0.01"},
    "cleaned-both": {
        "cleanup.policy": "compact,delete",
        "min.cleanable.dirty.ratio": "0.01",
        "retention.bytes": 3 * SEGMENT,
    },
    "cleaned-limited": {"cleanup.policy": "delete", "retention.bytes": 3 * SEGMENT},
}
Stored = list[tuple[int, bytes | None, bytes | None]]


def random_batches(now_ms: int) -> Iterator[bytes]:
    """Random keys, one in twenty records a tombstone."""
    chance = random.Random(11)
    for first in range(0, RECORDS, BATCH):
        yield write_batch(
            [
                (
                    b"%d" % chance.randrange(KEYS),
                    None if chance.random() < 0.05 else b"%0100d" % (first + number),
                )
                for number in range(BATCH)
            ],
            now_ms,
        )


def fill(bootstrap_servers: str, batches: list[bytes]) -> None:
    with WireClient(bootstrap_servers) as client:
        for batch in batches:
            parts = [{"index": 0, "records": batch}]
            wanted = [{"name": topic, "partition_data": parts} for topic in TOPICS]
            client.send(ApiKey.PRODUCE, 9, {"acks": -1, "timeout": 30_000, "topic_data": wanted})
            for answer in client.receive(ApiKey.PRODUCE, 9)[1].responses:
                assert answer.partition_responses[0].error_code == 0


def stored(bootstrap_servers: str, topic: str) -> Stored:
    return [(r.offset, r.key, r.value) for _, r in read_topic(bootstrap_servers, topic)]


def test_the_same_records_are_kept(shared_kafka: SharedKafka) -> None:
    kafka = shared_kafka(NEWEST)
    batches = list(random_batches(int(time.time() * 1000)))
    with EmbeddedBroker() as broker:
        admin = TopicAdmin(kafka.bootstrap_servers)
        for topic, own in TOPICS.items():
            settings = {name: str(value) for name, value in (COMMON | own).items()}
            broker.create_topic(topic, 1, settings)
            named: dict[str, Any] = {n.replace(".", "_"): v for n, v in settings.items()}
            admin.create(topic, 1, **named)
        for address in (kafka.bootstrap_servers, broker.bootstrap_servers):
            fill(address, batches)
        deadline = time.monotonic() + PATIENCE
        for topic in ("cleaned-compacted", "cleaned-limited"):
            broker.maintain()
            ours = stored(broker.bootstrap_servers, topic)
            assert len(ours) < RECORDS / 2
            while (theirs := stored(kafka.bootstrap_servers, topic)) != ours:
                assert time.monotonic() < deadline, (topic, len(theirs), len(ours))
                time.sleep(0.5)
        # Where both happen it depends on which comes first. The last record of a key is kept.
        latest = {
            key: offset for offset, key, _ in stored(broker.bootstrap_servers, "cleaned-both")
        }
        theirs_latest = {key: o for o, key, _ in stored(kafka.bootstrap_servers, "cleaned-both")}
        assert all(theirs_latest.get(key, offset) == offset for key, offset in latest.items())
