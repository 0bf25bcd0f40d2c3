"""Other people's consumers in groups of the embedded broker."""

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
    # It reads its message schemas with a function that Python 3.11 deprecates.
    warnings.simplefilter("ignore", DeprecationWarning)
    from kafka import ConsumerRebalanceListener, KafkaConsumer

pytestmark = [pytest.mark.filterwarnings("ignore::DeprecationWarning:kafka")]
PARTITIONS = 6
RECORDS = 600
PATIENCE = 60
SESSION_MS = 6_000
"""Longer than a busy machine keeps a thread waiting: once librdkafka takes its session for over, it
asks without a member id, and ends for good when it is then told that it is fenced."""
POLL_MS = 20_000
"""A poll ends with the first records. kafka-python 3.0.12 forgets to take over what it is assigned
when a poll runs out of time between the group's answer and its own next step: it waits for ever."""


BROKER: dict[str, Any] = {
    "topics": {"t": PARTITIONS},
    "group_config": GroupConfig(min_session_timeout_ms=500),
}


def fill(broker: EmbeddedBroker, first: int = 0, count: int = RECORDS) -> None:
    with KafkaProducer(bootstrap_servers=broker.bootstrap_servers) as producer:
        for number in range(first, first + count):
            producer.send("t", b"%d" % number, partition=number % PARTITIONS)


def test_aiokafka_shares_a_topic_between_two(broker: EmbeddedBroker) -> None:
    async def consume() -> list[int]:
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
        found: list[int] = []
        while len(found) < RECORDS:
            for consumer in consumers:
                for records in (await consumer.getmany(timeout_ms=50)).values():
                    found += [int(record.value or b"") for record in records]
        for consumer in consumers:
            await consumer.stop()
        return found

    assert Counter(asyncio.run(consume())) == Counter(range(RECORDS))


def confluent(broker: EmbeddedBroker, *topics: str, **options: Any) -> Consumer:
    timeouts: dict[str, Any] = {"session_timeout_ms": 1000, "heartbeat_interval_ms": 100, **options}
    return confluent_consumer(broker.bootstrap_servers, *topics, **timeouts)


class Assignments(ConsumerRebalanceListener):  # type: ignore[misc]  # kafka-python has no types
    """The generation of a consumer, and how many partitions it was given, at each assignment."""

    def __init__(self) -> None:
        self.consumer: Any = None
        self.all: list[tuple[int, int]] = []

    def on_partitions_revoked(self, revoked: object) -> None:
        pass

    def on_partitions_assigned(self, assigned: Sized) -> None:
        self.all.append((self.consumer.group_metadata().generation_id, len(assigned)))


def test_a_static_member_comes_back_without_a_rebalance(broker: EmbeddedBroker) -> None:
    """KIP-345: same instance id, same assignment, same generation; it goes on where it committed.

    A consumer that joins before it knows the topic's partitions joins once more, by itself.
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
        # A static member does not say that it goes.
        member.consumer.close()
    generation, partitions = members[0].all[-1]
    assert partitions == PARTITIONS
    assert members[1].all[0] == (generation, PARTITIONS)
    assert len(set(found)) == len(found)


def test_a_rebalance_of_three_under_load_loses_and_doubles_nothing(broker: EmbeddedBroker) -> None:
    """What counts as processed is what was committed: one of three members dies on the way.

    A static member does not tell the group that it goes: its end is the same as a kill.
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
        if not filling.ident and all(len(one.assignment()) == 2 for one in members.values()):
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
                continue  # the group went on without it: whoever has the partition processes it
            found.append(int(message.value() or b""))
    filling.join()
    for member in members.values():
        member.close()
    assert "killed" not in members
    assert Counter(found) == Counter(range(RECORDS))


def test_an_admin_sees_and_deletes_groups(broker: EmbeddedBroker) -> None:
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
