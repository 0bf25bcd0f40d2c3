"""Three consumers share a topic; one process is killed while records come in.

A consumer that commits after each record has processed what it wrote down. Nothing is lost: each
record was processed. Nothing is doubled: what one member processed, and had its commit confirmed,
no member processes again. Only what a member had in its hands when it died, or lost its partition,
is processed by another one.
"""

from __future__ import annotations

import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, closing
from pathlib import Path

import pytest
from confluent_kafka import Consumer, TopicPartition

from kprod import KafkaProducer
from kprod.broker import EmbeddedBroker
from kprod.broker.groups.group import GroupConfig

pytestmark = pytest.mark.full
PARTITIONS = 6
RECORDS = 1200
PATIENCE = 120


@pytest.fixture
def broker() -> Iterator[EmbeddedBroker]:
    groups = GroupConfig(min_session_timeout_ms=500)
    with EmbeddedBroker(topics={"t": PARTITIONS}, group_config=groups) as broker:
        yield broker


class Member:
    """A process, and what it wrote down."""

    def __init__(self, stack: ExitStack, broker: EmbeddedBroker, journal: Path) -> None:
        self._journal = journal
        module = "tests.support.group_member"
        command = [sys.executable, "-m", module, broker.bootstrap_servers, "t", str(journal)]
        self.process = stack.enter_context(subprocess.Popen(command))
        stack.callback(self.process.kill)

    def wrote(self, kind: str) -> list[tuple[int, int]]:
        """Partition and offset of each line of a kind; the last line may be torn."""
        if not self._journal.exists():
            return []
        lines = self._journal.read_text().split("\n")[:-1]
        words = [line.split() for line in lines]
        return [(int(each[1]), int(each[2])) for each in words if each[0] == kind]


def wait_until(true: object) -> None:
    assert callable(true)
    deadline = time.monotonic() + PATIENCE
    while not true():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def onlooker(broker: EmbeddedBroker) -> closing[Consumer]:
    """A client that reads and commits the group's offsets, and is no member."""
    return closing(Consumer({"bootstrap.servers": broker.bootstrap_servers, "group.id": "g"}))


def begin(broker: EmbeddedBroker) -> None:
    """Commit where the group begins, so that no member has to ask for a partition's first offset.

    librdkafka (2.16.0) reads a partition that it lost while that question was under way: the answer
    sets the stopped partition going. When the member gets it back, the first record read in between
    reaches the application before the committed offset counts, and a commit of it is valid.
    """
    first = [TopicPartition("t", number, 0) for number in range(PARTITIONS)]
    with onlooker(broker) as consumer:
        consumer.commit(offsets=first, asynchronous=False)


def committed(broker: EmbeddedBroker) -> int:
    """How many records the group has behind it."""
    wanted = [TopicPartition("t", number) for number in range(PARTITIONS)]
    with onlooker(broker) as consumer:
        return sum(max(one.offset, 0) for one in consumer.committed(wanted, timeout=PATIENCE))


def fill(broker: EmbeddedBroker, first: int, end: int) -> None:
    with KafkaProducer(bootstrap_servers=broker.bootstrap_servers) as producer:
        for number in range(first, end):
            producer.send("t", b"%d" % number, partition=number % PARTITIONS)


def test_a_killed_consumer_loses_and_doubles_nothing(
    broker: EmbeddedBroker, tmp_path: Path
) -> None:
    begin(broker)
    with ExitStack() as stack:
        members = [Member(stack, broker, tmp_path / name) for name in "abc"]
        fill(broker, 0, RECORDS // 3)
        # All three have work, and there is more to come, when one dies.
        rest = threading.Thread(target=fill, args=(broker, RECORDS // 3, RECORDS))
        count = RECORDS
        while not all(member.wrote("committed") for member in members):
            fill(broker, count, count + PARTITIONS)
            count += PARTITIONS
        rest.start()
        members[0].process.kill()
        rest.join()
        wait_until(lambda: committed(broker) == count)
    check(members, count)


def check(members: list[Member], count: int) -> None:
    """Each record was processed, and its commit confirmed once: to one member, for one reading.

    A member that lost its partition with a record in hand may get the partition back. It writes
    ``did`` twice, and its first commit was refused: the lines of commits are what counts.
    """
    assert len({record for member in members for record in member.wrote("did")}) == count
    commits = Counter(record for member in members for record in member.wrote("committed"))
    assert not {record: times for record, times in commits.items() if times > 1}
