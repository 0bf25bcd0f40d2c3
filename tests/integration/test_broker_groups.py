"""Other people's consumers in groups of the embedded broker."""

from __future__ import annotations

import asyncio
import threading
import time
import warnings
from collections import Counter
from collections.abc import Callable, Iterator, Sized
from typing import Any

import pytest
from aiokafka import AIOKafkaConsumer
from confluent_kafka import Consumer, KafkaException
from confluent_kafka import TopicPartition as Assigned
from confluent_kafka.admin import AdminClient

from kprod import KafkaProducer
from kprod.broker import EmbeddedBroker
from kprod.broker.groups.group import GroupConfig

with warnings.catch_warnings():
    # It reads its message schemas with a function that Python 3.11 deprecates.
    warnings.simplefilter("ignore", DeprecationWarning)
    from kafka import ConsumerRebalanceListener, KafkaConsumer

pytestmark = [
    pytest.mark.filterwarnings("ignore::DeprecationWarning:kafka"),
]
PARTITIONS = 6
RECORDS = 600
PATIENCE = 60
SESSION_MS = 6_000
POLL_MS = 20_000
"""A poll ends with the first records. kafka-python 3.0.12 forgets to take over what it is assigned
when a poll runs out of time between the group's answer and its own next step: it waits for ever."""


@pytest.fixture
def broker() -> Iterator[EmbeddedBroker]:
    groups = GroupConfig(min_session_timeout_ms=500)
    with EmbeddedBroker(topics={"t": PARTITIONS}, group_config=groups) as broker:
        yield broker


def fill(broker: EmbeddedBroker, first: int = 0, count: int = RECORDS) -> None:
    with KafkaProducer(bootstrap_servers=broker.bootstrap_servers) as producer:
        for number in range(first, first + count):
            producer.send("t", b"%d" % number, partition=number % PARTITIONS)


def expected(count: int = RECORDS) -> set[int]:
    return set(range(count))


def test_kafka_python_goes_on_where_it_committed(broker: EmbeddedBroker) -> None:
    fill(broker)
    found: list[int] = []
    for limit in (200, RECORDS - 200):
        consumer = KafkaConsumer(
            "t",
            bootstrap_servers=broker.bootstrap_servers,
            group_id="g",
            auto_offset_reset="earliest",
            enable_auto_commit=False,
            max_poll_records=50,
        )
        taken = 0
        while taken < limit:
            for records in consumer.poll(POLL_MS).values():
                found += [int(record.value) for record in records]
                taken += len(records)
        consumer.commit()
        consumer.close()
    assert Counter(found) == Counter(expected())


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

    assert Counter(asyncio.run(consume())) == Counter(expected())


def confluent(broker: EmbeddedBroker, group: str = "g", **options: object) -> Consumer:
    settings: dict[str, Any] = {
        "bootstrap.servers": broker.bootstrap_servers,
        "group.id": group,
        "auto.offset.reset": "earliest",
        "enable.auto.commit": False,
        "session.timeout.ms": 1000,
        "heartbeat.interval.ms": 100,
        **options,
    }
    return Consumer(settings)


def test_confluent_commits_survive_a_restart(broker: EmbeddedBroker) -> None:
    fill(broker)
    consumer = confluent(broker)
    consumer.subscribe(["t"])
    taken = 0
    while taken < RECORDS:
        message = consumer.poll(1)
        if message is not None:
            assert message.error() is None
            taken += 1
    consumer.commit(asynchronous=False)
    consumer.close()
    broker.kill()
    broker.start()
    again = confluent(broker)
    offsets = again.committed([Assigned("t", number) for number in range(PARTITIONS)], timeout=20)
    assert [one.offset for one in offsets] == [RECORDS // PARTITIONS] * PARTITIONS
    again.close()


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
    """KIP-345: same instance id, same assignment, same generation.

    A consumer that joins before it knows the topic's partitions joins once more, by itself.
    """
    fill(broker)
    members = [Assignments(), Assignments()]
    for member in members:
        member.consumer = KafkaConsumer(
            bootstrap_servers=broker.bootstrap_servers,
            group_id="g",
            group_instance_id="one",
            session_timeout_ms=30_000,
            auto_offset_reset="earliest",
            enable_auto_commit=False,
        )
        member.consumer.subscribe(["t"], listener=member)
        assert member.consumer.poll(POLL_MS)
        # A static member does not say that it goes.
        member.consumer.close()
    generation, partitions = members[0].all[-1]
    assert partitions == PARTITIONS
    assert members[1].all[0] == (generation, PARTITIONS)


class Member(threading.Thread):
    """Consumes and commits what it has processed, until it is stopped or dies.

    A static member does not tell the group that it goes: its end is the same as a kill. Its session
    lasts longer than a busy machine keeps a thread waiting: once librdkafka takes its session for
    over, it asks without a member id, and ends for good when it is then told that it is fenced.
    """

    def __init__(self, broker: EmbeddedBroker, name: str, done: Callable[[int], None]) -> None:
        super().__init__(daemon=True)
        static: dict[str, Any] = {"group.instance.id": name, "session.timeout.ms": SESSION_MS}
        self._consumer = confluent(broker, **static)
        self._consumer.subscribe(["t"])
        self._done = done
        self.killed = threading.Event()
        self.stopped = threading.Event()
        self.assigned = 0

    def run(self) -> None:
        while not self.stopped.is_set():
            message = self._consumer.poll(0.05)
            self.assigned = len(self._consumer.assignment())
            if message is None or message.error() is not None:
                continue
            if self.killed.is_set():
                # Dead before it has processed and committed this one.
                self._consumer.close()
                return
            try:
                self._consumer.commit(message=message, asynchronous=False)
            except KafkaException:
                # The group went on without it: whoever has the partition now processes it.
                continue
            self._done(int(message.value() or b""))
        self._consumer.close()


def test_a_rebalance_of_three_under_load_loses_and_doubles_nothing(broker: EmbeddedBroker) -> None:
    """What counts as processed is what was committed: one of three members dies on the way."""
    lock = threading.Lock()
    found: list[int] = []

    def done(number: int) -> None:
        with lock:
            found.append(number)

    members = [Member(broker, name, done) for name in ("a", "b", "c")]
    for member in members:
        member.start()
    deadline = time.monotonic() + PATIENCE
    while sum(member.assigned == 2 for member in members) < 3:
        assert time.monotonic() < deadline, [member.assigned for member in members]
        time.sleep(0.01)
    filling = threading.Thread(target=fill, args=(broker,))
    filling.start()
    while len(found) < RECORDS // 10:
        assert time.monotonic() < deadline
        time.sleep(0.01)
    members[0].killed.set()
    filling.join()
    while len(set(found)) < RECORDS:
        assert time.monotonic() < deadline, len(found)
        time.sleep(0.01)
    for member in members[1:]:
        member.stopped.set()
    for member in members:
        member.join()
    assert Counter(found) == Counter(expected())


def test_an_admin_sees_and_deletes_groups(broker: EmbeddedBroker) -> None:
    fill(broker, count=6)
    consumer = confluent(broker)
    consumer.subscribe(["t"])
    while consumer.poll(1) is None:
        pass
    consumer.commit(asynchronous=False)
    admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers})
    described = admin.describe_consumer_groups(["g"])["g"].result(20)
    assert described.state.name == "STABLE"
    assert [len(member.assignment.topic_partitions) for member in described.members] == [PARTITIONS]
    assert [group.group_id for group in admin.list_consumer_groups().result(20).valid] == ["g"]
    consumer.close()
    admin.delete_consumer_groups(["g"])["g"].result(20)
    assert admin.list_consumer_groups().result(20).valid == []
