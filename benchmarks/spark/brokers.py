"""Where the rows go: a receiver that counts and keeps nothing, or Apache Kafka."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Protocol

from benchmarks.sink.sink_process import SinkProcess

PARTITIONS = 12
TICKS = os.sysconf("SC_CLK_TCK")
TOPIC = "t"
JAVA = ("-XX:TieredStopAtLevel=4", "-Xmx1g")
"""What the broker of the tests, which starts fast, has otherwise than a broker that is measured."""


class Broker(Protocol):
    """A broker during turns, of which there is one at a time."""

    bootstrap_servers: str

    def begin(self) -> str:
        """The topic of the next turn, with ``PARTITIONS`` partitions."""

    def end(self) -> Mapping[str, int]:
        """What the turn has brought: ``records``, and what else this broker counts."""

    def cpu_seconds(self) -> float:
        """The CPU time it has taken so far."""


class Receiver:
    """``benchmarks.sink``: acknowledges and counts. Knows ``requests`` and ``batch_bytes``, too."""

    def __init__(self, sink: SinkProcess) -> None:
        self._sink = sink
        self._before: Mapping[str, int] = {}
        self.bootstrap_servers = sink.bootstrap_servers
        self.cpu_seconds = sink.cpu_seconds

    def begin(self) -> str:
        """See Broker. It is always the same one."""
        self._before = self._sink.counts()
        return TOPIC

    def end(self) -> Mapping[str, int]:
        """See Broker."""
        after = self._sink.counts()
        counted = ("records", "requests", "batch_bytes")
        return {name: after[name] - self._before[name] for name in counted}


class Kafka:
    """One broker of Apache Kafka. Every turn has a topic of its own, which is then removed."""

    def __init__(self, bootstrap_servers: str, pid: int) -> None:
        from tests.support.topic_admin import TopicAdmin

        self.bootstrap_servers = bootstrap_servers
        self.cpu_seconds = lambda: cpu_ticks(pid)[pid] / TICKS
        self._turns = 0
        self._admin = TopicAdmin(bootstrap_servers)

    @property
    def _topic(self) -> str:
        return f"{TOPIC}-{self._turns}"

    def begin(self) -> str:
        """See Broker."""
        self._turns += 1
        self._admin.create(self._topic, PARTITIONS)
        return self._topic

    def end(self) -> Mapping[str, int]:
        """See Broker."""
        from kprod.admin import end_offsets

        records = sum(end_offsets(self.bootstrap_servers, self._topic).values())
        self._admin.delete(self._topic)
        return {"records": records}


@contextmanager
def receiver() -> Iterator[Broker]:
    """A receiver for the block."""
    with SinkProcess(PARTITIONS) as sink:
        yield Receiver(sink)


@contextmanager
def kafka() -> Iterator[Broker]:
    """Apache Kafka for the block, fetched by Maven when it is first wanted."""
    from tests.support.apache_kafka.broker import ApacheKafka, Guards
    from tests.support.apache_kafka.jars import NEWEST

    properties: dict[str, object] = {"log.segment.delete.delay.ms": 1_000}
    guards = Guards({}, properties, [], java=JAVA)
    with (
        tempfile.TemporaryDirectory() as folder,
        ApacheKafka(Path(folder, "kafka"), NEWEST, guards=guards) as broker,
    ):
        yield Kafka(broker.bootstrap_servers, broker.pid)


BROKERS: dict[str, Callable[[], AbstractContextManager[Broker]]] = {
    "receiver": receiver,
    "kafka": kafka,
}


def cpu_ticks(root: int) -> dict[int, int]:
    """By process: the CPU time, in ticks, that a process and each one below it has taken so far."""
    parents: dict[int, int] = {}
    ticks: dict[int, int] = {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = stat.read_text().rpartition(")")[2].split()
        except OSError:
            continue
        pid = int(stat.parent.name)
        parents[pid] = int(fields[1])
        ticks[pid] = int(fields[11]) + int(fields[12])

    def below(pid: int) -> bool:
        while pid > 1 and pid != root:
            pid = parents.get(pid, 0)
        return pid == root

    return {pid: taken for pid, taken in ticks.items() if below(pid)}


def cpu_seconds_since(before: dict[int, int], root: int) -> float:
    """What the same processes, and those that have begun since, have taken since ``before``.

    Those that have ended since are left out: Spark ends Python workers after a minute without work,
    and does not wait for them, so that the system forgets what they took.
    """
    taken = {pid: ticks - before.get(pid, 0) for pid, ticks in cpu_ticks(root).items()}
    return sum(taken.values()) / TICKS
