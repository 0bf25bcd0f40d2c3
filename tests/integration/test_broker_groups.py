"""Consumer groups of aiokafka, kafka-python and confluent-kafka on the embedded broker."""

from __future__ import annotations

import asyncio
import threading
import time
import warnings
from collections import Counter
from collections.abc import Sized
from typing import Any

import pytest
from aiokafka import AIOKafkaConsumer
from confluent_kafka import Consumer, KafkaException
from confluent_kafka.admin import AdminClient

from kprod import KafkaProducer
from kprod.broker import EmbeddedBroker
from kprod.broker.groups.group import GroupConfig
from tests.support.confluent_consumer import confluent_consumer, read

with warnings.catch_warnings():
    # Its schema loader uses a function deprecated in Python 3.11.
    warnings.simplefilter("ignore", DeprecationWarning)
    from kafka import ConsumerRebalanceListener, KafkaConsumer

pytestmark = [pytest.mark.filterwarnings("ignore::DeprecationWarning:kafka")]
PARTITIONS = 6
RECORDS = 600
PATIENCE = 60
SESSION_MS = 6_000
"""Long enough for a busy machine: librdkafka with an expired session requests without a member id,
and stops permanently when it is then fenced."""
POLL_MS = 20_000
"""A poll returns with the first records. kafka-python 3.0.12 drops an assignment and waits forever
if a poll times out between the group's response and its own next step."""


BROKER: dict[str, Any] = {
    "topics": {"t": PARTITIONS},
    "group_config": GroupConfig(min_session_timeout_ms=500),
}


def fill(broker: EmbeddedBroker, first: int = 0, count: int = RECORDS) -> None:
    with KafkaProducer(bootstrap_servers=broker.bootstrap_servers) as producer:
        for number in range(first, first + count):
            producer.send("t", b"%d" % number, partition=number % PARTITIONS)


def test_two_aiokafka_consumers_share_a_topic(broker: EmbeddedBroker) -> None:
    async def consume() -> set[int]:
        consumers = [
            AIOKafkaConsumer(
                "t",
                bootstrap_servers=broker.bootstrap_servers,
                group_id="g",
                auto_offset_reset="earliest",
                heartbeat_interval_ms=200,
            )
            for _ in range(2)
        ]
        for consumer in consumers:
            await consumer.start()
        while not all(len(consumer.assignment()) == PARTITIONS / 2 for consumer in consumers):
            await asyncio.sleep(0.01)
        await asyncio.to_thread(fill, broker)
        found: set[int] = set()  # on a busy machine, a rebalance may deliver some twice
        while len(found) < RECORDS:
            for consumer in consumers:
                for records in (await consumer.getmany(timeout_ms=50)).values():
                    found.update(int(record.value or b"") for record in records)
        for consumer in consumers:
            await consumer.stop()
        return found

    assert asyncio.run(consume()) == set(range(RECORDS))


def confluent(broker: EmbeddedBroker, *topics: str, **options: Any) -> Consumer:
    timeouts: dict[str, Any] = {"session_timeout_ms": 1000, "heartbeat_interval_ms": 100, **options}
    return confluent_consumer(broker.bootstrap_servers, *topics, **timeouts)


class Assignments(ConsumerRebalanceListener):  # type: ignore[misc]  # kafka-python has no types
    """The generation and number of partitions of a consumer at each assignment."""

    def __init__(self) -> None:
        self.consumer: Any = None
        self.all: list[tuple[int, int]] = []

    def on_partitions_revoked(self, revoked: object) -> None:
        pass

    def on_partitions_assigned(self, assigned: Sized) -> None:
        self.all.append((self.consumer.group_metadata().generation_id, len(assigned)))


def test_a_static_member_returns_without_a_rebalance(broker: EmbeddedBroker) -> None:
    """KIP-345: same instance id, assignment and generation; it continues at its commit.

    A consumer that joins before it knows the topic's partitions rejoins by itself.
    """
    fill(broker)
    members = [Assignments(), Assignments()]
    found: list[int] = []
    for member in members:
        member.consumer = KafkaConsumer(
            bootstrap_servers=broker.bootstrap_servers,
            group_id="g",
            group_instance_id="one",
            session_timeout_ms=30_000,
            max_poll_records=50,
            auto_offset_reset="earliest",
            enable_auto_commit=False,
        )
        member.consumer.subscribe(["t"], listener=member)
        polled = member.consumer.poll(POLL_MS)
        assert polled
        found += [int(record.value) for records in polled.values() for record in records]
        member.consumer.commit()
        # A static member does not send LeaveGroup.
        member.consumer.close()
    generation, partitions = members[0].all[-1]
    assert partitions == PARTITIONS
    assert members[1].all[0] == (generation, PARTITIONS)
    assert len(set(found)) == len(found)


def test_a_rebalance_under_load_loses_and_duplicates_nothing(broker: EmbeddedBroker) -> None:
    """Committed records count as processed. One of three members dies meanwhile.

    A static member does not send LeaveGroup: closing it is like killing it.
    """
    members: dict[str, Consumer] = {}
    for name in ("killed", "b", "c"):
        static = {"group_instance_id": name, "session_timeout_ms": SESSION_MS}
        members[name] = confluent(broker, "t", **static)
    found: list[int] = []
    filling = threading.Thread(target=fill, args=(broker,))
    deadline = time.monotonic() + PATIENCE
    while len(set(found)) < RECORDS:
        assert time.monotonic() < deadline, len(found)
        if not filling.ident and all(len(each.assignment()) == 2 for each in members.values()):
            filling.start()
        for name, member in list(members.items()):
            message = member.poll(0.01)
            if message is None or message.error() is not None:
                continue
            if name == "killed" and len(found) >= RECORDS // 10:
                members.pop(name).close()  # before it has processed and committed this one
                continue
            try:
                member.commit(message=message, asynchronous=False)
            except KafkaException:
                continue  # a rebalance: another member processes it
            found.append(int(message.value() or b""))
    filling.join()
    for member in members.values():
        member.close()
    assert "killed" not in members
    assert Counter(found) == Counter(range(RECORDS))


def test_an_admin_client_describes_lists_and_deletes_groups(broker: EmbeddedBroker) -> None:
    fill(broker, count=6)
    consumer = confluent(broker, "t")
    read(consumer, 1)
    consumer.commit(asynchronous=False)
    admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers})
    described = admin.describe_consumer_groups(["g"])["g"].result(20)
    assert described.state.name == "STABLE"
    assert [len(member.assignment.topic_partitions) for member in described.members] == [PARTITIONS]
    assert [group.group_id for group in admin.list_consumer_groups().result(20).valid] == ["g"]
    consumer.close()
    admin.delete_consumer_groups(["g"])["g"].result(20)
    assert admin.list_consumer_groups().result(20).valid == []
