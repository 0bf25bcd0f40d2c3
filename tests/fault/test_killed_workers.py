"""Two consume-transform-produce workers and their broker, killed (SIGKILL) repeatedly.

Committed records must be the transformed input, once and in order.
``KPROD_CAMPAIGN=long``: 100,000 records, 100 kills of workers and 10 of brokers, for the embedded
broker and for Apache Kafka by both protocols.
"""

from __future__ import annotations

import random
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple, Protocol

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition

from kprod import KafkaProducer
from tests.fault.transforming_worker import GROUP, INPUT, OUTPUT
from tests.support.apache_kafka.broker import ApacheKafka
from tests.support.apache_kafka.jars import NEWEST, OLDER
from tests.support.broker_process import BrokerProcess
from tests.support.committed_records import committed
from tests.support.tier import CAMPAIGN
from tests.support.topic_admin import TopicAdmin

pytestmark = pytest.mark.full

ROOT = Path(__file__).parents[2]
EMBEDDED = "embedded"
BROKERS = [EMBEDDED, NEWEST, OLDER] if CAMPAIGN else [EMBEDDED]
WORKERS = ((0, 2), (1, 3))  # partitions of each
PARTITIONS = 4
MOVING = (
    KafkaError.COORDINATOR_LOAD_IN_PROGRESS,
    KafkaError.COORDINATOR_NOT_AVAILABLE,
    KafkaError.NOT_COORDINATOR,
)
PATIENCE = 180.0


class Size(NamedTuple):
    records: int
    worker_kills: int
    broker_kills: int


SIZE = Size(100_000, 100, 10) if CAMPAIGN else Size(3_000, 3, 1)


class Broker(Protocol):
    @property
    def bootstrap_servers(self) -> str: ...

    def kill(self) -> None: ...

    def start(self) -> None: ...


@contextmanager
def running(kind: str, folder: Path) -> Iterator[Broker]:
    topics = {INPUT: PARTITIONS, OUTPUT: PARTITIONS}
    if kind == EMBEDDED:
        with BrokerProcess(folder / "data", topics) as embedded:
            yield embedded
        return
    with ApacheKafka(folder, kind) as kafka:
        for name, partitions in topics.items():
            TopicAdmin(kafka.bootstrap_servers).create(name, partitions)
        yield kafka


class Workers:
    """Worker processes; one that exits by itself is restarted."""

    def __init__(self, bootstrap_servers: str, folder: Path) -> None:
        self.exits = 0
        self._bootstrap_servers = bootstrap_servers
        self._errors = folder / "workers.log"
        self._processes: dict[int, subprocess.Popen[bytes]] = {}
        self._group = Consumer(
            {"bootstrap.servers": bootstrap_servers, "group.id": GROUP, "log_level": 2}
        )

    def start(self, number: int) -> None:
        command = [sys.executable, "-m", "tests.fault.transforming_worker"]
        command += [self._bootstrap_servers, f"worker-{number}", *map(str, WORKERS[number])]
        with self._errors.open("ab") as errors:
            self._processes[number] = subprocess.Popen(command, cwd=ROOT, stderr=errors)

    def kill(self, number: int) -> None:
        self._processes[number].kill()
        self._processes[number].wait()

    def done(self) -> int:
        """The number of records transformed and committed; 0 while the coordinator moves."""
        for number, process in self._processes.items():
            if process.poll() is not None:
                self.exits += 1
                assert self.exits < 100, self._errors.read_text()[-2000:]
                self.start(number)
        partitions = [TopicPartition(INPUT, number) for number in range(PARTITIONS)]
        try:
            found = self._group.committed(partitions, timeout=PATIENCE)
        except KafkaException as error:
            if error.args[0].code() not in MOVING:
                raise
            return 0
        return sum(max(partition.offset, 0) for partition in found)

    def await_done(self, records: int) -> None:
        """Wait until at least so many are transformed and committed."""
        deadline = time.monotonic() + PATIENCE
        while self.done() < records:
            assert time.monotonic() < deadline, self._errors.read_text()[-2000:]

    def end(self) -> None:
        for number in self._processes:
            self.kill(number)
        self._group.close()


def lines(first: int, end: int) -> Iterator[tuple[int, bytes]]:
    """Partition and value of each record of the input, from one number up to another."""
    return ((number % PARTITIONS, b"line %07d" % number) for number in range(first, end))


def fill(bootstrap_servers: str, first: int, end: int) -> None:
    with KafkaProducer(bootstrap_servers=bootstrap_servers) as producer:
        for partition, value in lines(first, end):
            producer.send(INPUT, value, partition=partition)
        assert producer.flush(PATIENCE).failed == 0


def transform(broker: Broker, workers: Workers, size: Size) -> None:
    """Transform everything, and kill a worker in each part but the last.

    The next part is written after the kill, so that the workers cannot finish before all kills.
    """
    rng = random.Random(size.records)
    parts = size.worker_kills + 1
    ends = [size.records * number // parts for number in range(parts + 1)]
    crashes = {parts * number // (size.broker_kills + 1) for number in range(size.broker_kills)}
    for number in range(len(WORKERS)):
        workers.start(number)
    for part in range(size.worker_kills):
        fill(broker.bootstrap_servers, ends[part], ends[part + 1])
        workers.await_done(ends[part] + 1)
        number = rng.randrange(len(WORKERS))
        time.sleep(rng.random() * 0.03)  # during its next transaction
        workers.kill(number)
        workers.start(number)
        if part in crashes:
            broker.kill()
            broker.start()
    fill(broker.bootstrap_servers, ends[-2], ends[-1])
    workers.await_done(size.records)


@pytest.mark.timeout(1800)
@pytest.mark.parametrize("kind", BROKERS)
def test_killed_workers_transform_every_record_exactly_once(kind: str, tmp_path: Path) -> None:
    with running(kind, tmp_path) as broker:
        workers = Workers(broker.bootstrap_servers, tmp_path)
        started = time.monotonic()
        try:
            transform(broker, workers, SIZE)
        finally:
            workers.end()
        took = time.monotonic() - started
        found = committed(broker.bootstrap_servers, OUTPUT, PARTITIONS)
        uncommitted = committed(
            broker.bootstrap_servers, OUTPUT, PARTITIONS, isolation="read_uncommitted"
        )
    expected = sorted(lines(0, SIZE.records))  # ordered by partition
    assert found == [value.upper() for _, value in expected]
    if CAMPAIGN:
        assert len(uncommitted) > len(found), "no kill hit a transaction"
    print(
        f"{kind}: {SIZE.records:,} records, {SIZE.worker_kills} kills of workers and"
        f" {SIZE.broker_kills} of brokers in {took:.0f} s; {len(uncommitted) - len(found):,}"
        f" records of aborted transactions; {workers.exits} workers exited by themselves"
    )
