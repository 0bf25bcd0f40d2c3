"""Producers in another process: after a fork, in forking servers, and unpickled."""

from __future__ import annotations

import asyncio
import json
import pickle
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from kprod import KafkaProducer
from kprod.broker import EmbeddedBroker
from kprod.transport.tcp import TcpBackend
from kprod_ext.futures import FutureRecordMetadata
from tests.support.committed_records import committed, read_back
from tests.support.forking_servers import PROGRAM, check_pool, check_server
from tests.support.forks import FORKS, by_python, in_child
from tests.support.programs import run_python
from tests.support.tier import one_of


@pytest.mark.parametrize("kind", one_of("child", "daemon"))
@pytest.mark.parametrize("fork", FORKS)
def test_parent_and_child_get_their_own_offsets(fork: Callable[[], int], kind: str) -> None:
    """A daemon closes inherited files; its own files then reuse their descriptors."""
    with EmbeddedBroker(default_partitions=1) as broker:
        results = _results_of(broker, fork.__name__, kind)
        files = results.pop("files")
        found = {topic: committed(broker.bootstrap_servers, topic, 1) for topic in results}
    for topic in results.keys() - {"transactions", "queued"}:
        assert results[topic] == [0, 1, 2], topic
        assert found[topic] == [b"first", b"child", b"last"], topic
    _, child, last = results["transactions"]
    assert child == 2  # after the parent's record and its abort marker
    assert "ProducerFencedError" in last
    assert found["transactions"] == [b"child"]
    _, waited, last = results["queued"]
    assert "only the parent hears of the outcome" in waited
    assert last == [0, 1, 2, 3]
    assert found["queued"] == [b"first"] * 4
    assert all(files)
    assert bool(files) == (kind == "daemon")


def _results_of(broker: EmbeddedBroker, fork: str, kind: str) -> dict[str, Any]:
    module = "tests.support.forked_apis"
    ran = run_python("-m", module, broker.bootstrap_servers, fork, kind)
    results: dict[str, Any] = json.loads(ran.stdout)
    return results


FORKS_WITHOUT_GIL = """
import ctypes, os, sys
from kprod import KafkaProducer
from tests.support.forks import ended_within

producer = KafkaProducer(bootstrap_servers=sys.argv[1])
fork = ctypes.CDLL(None).fork  # ctypes releases the GIL, as uWSGI does before it forks
for _ in range(40):
    producer.send("t", b"first").get(30)
    child = fork()
    if child == 0:
        producer.send("t", b"child").get(30)
        os._exit(0)
    if not ended_within(child, 60):
        sys.exit("a child has hung")
producer.close()
"""


def test_a_child_forked_without_the_gil_does_not_hang() -> None:
    """The sender thread may hold the GIL during the fork, and is missing in the child."""
    with EmbeddedBroker(default_partitions=1) as broker:
        run_python("-c", FORKS_WITHOUT_GIL, broker.bootstrap_servers)
        stored = committed(broker.bootstrap_servers, "t", 1)
    assert sorted(stored) == [b"child"] * 40 + [b"first"] * 40


REQUESTS = 60


@pytest.mark.parametrize("method", ["fork", "forkserver"])
def test_a_pool_of_processes(method: str) -> None:
    check_pool(method, REQUESTS)


@pytest.mark.parametrize("workers", [["sync"], ["gthread", "--threads=4"]])
def test_gunicorn(workers: list[str], tmp_path: Path) -> None:
    command = [sys.executable, "-W", "ignore", "-m", "gunicorn", "--preload", "--workers=2"]
    where = ["--bind={address}", "--worker-class", *workers, f"{PROGRAM}:application"]
    check_server([*command, *where], REQUESTS, tmp_path / "log")


def _get(queued: FutureRecordMetadata) -> None:
    queued.get()  # raises at once: no timeout needed


def _await(queued: FutureRecordMetadata) -> None:
    async def wait() -> None:
        await queued

    asyncio.run(asyncio.wait_for(wait(), 5))


@pytest.mark.parametrize("wait", [_get, _await])
def test_a_child_cannot_wait_for_a_record_of_its_parent(
    wait: Callable[[FutureRecordMetadata], None],
) -> None:
    """It would write to the parent's connection concurrently with the parent."""
    with (
        EmbeddedBroker(topics={"forked": 1}) as broker,
        KafkaProducer(bootstrap_servers=broker.bootstrap_servers, linger_ms=500) as producer,
    ):
        for _ in range(5):  # by then the sender is idle, and the waiting caller does its work
            producer.send("forked", b"alone").get(timeout=20)
        queued = producer.send("forked", b"queued by the parent")
        error = in_child(by_python, lambda: wait(queued))
        assert queued.get(timeout=20).offset == 5
    assert error.startswith("IllegalStateError: ")
    assert "only the parent hears of the outcome" in error


def test_a_child_cannot_use_the_open_backend_of_its_parent() -> None:
    with (
        EmbeddedBroker(topics={"forked": 1}) as broker,
        KafkaProducer(
            bootstrap_servers=broker.bootstrap_servers, transport=TcpBackend()
        ) as producer,
    ):
        producer.send("forked", b"before").get(timeout=20)
        error = in_child(by_python, lambda: producer.send("forked", b"by the child").get(20))
        assert producer.send("forked", b"after").get(timeout=20).offset == 1
    assert error.startswith("IllegalStateError: ")
    assert "pass the backend's class, or a callable that makes one" in error


class SlowToStart:
    """A partitioner that lets another thread send while it starts in a child."""

    def __init__(self) -> None:
        self.meanwhile: Callable[[], None] | None = None

    @property
    def choose(self) -> Callable[..., int]:
        meanwhile, self.meanwhile = self.meanwhile, None
        if meanwhile is not None:
            meanwhile()
        return lambda _topic, _key: 0

    def appended(self, *_: object) -> None:
        """Nothing to do."""


def test_threads_of_a_child_wait_until_its_producer_has_started() -> None:
    partitioner = SlowToStart()
    with (
        EmbeddedBroker(topics={"forked": 1}) as broker,
        KafkaProducer(
            bootstrap_servers=broker.bootstrap_servers, partitioner=partitioner
        ) as producer,
    ):
        producer.send("forked", b"parent").get(timeout=20)
        assert in_child(by_python, lambda: _sent_by_two(producer, partitioner)) == "2"


def _sent_by_two(producer: KafkaProducer, partitioner: SlowToStart) -> int:
    """The number of records delivered by two threads."""
    queued: list[FutureRecordMetadata] = []
    other = threading.Thread(target=lambda: queued.append(producer.send("forked", b"other")))

    def meanwhile() -> None:
        other.start()
        other.join(0.3)  # it waits

    partitioner.meanwhile = meanwhile
    producer.send("forked", b"child").get(timeout=20)
    other.join(20)
    queued[0].get(timeout=20)
    return producer.close(timeout=20).delivered


def test_an_unpickled_producer_delivers() -> None:
    with (
        EmbeddedBroker(topics={"pickled": 1}) as broker,
        KafkaProducer(bootstrap_servers=broker.bootstrap_servers, client_id="original") as producer,
    ):
        producer.send("pickled", b"first").get(timeout=20)
        with pickle.loads(pickle.dumps(producer)) as copy:
            assert copy.config.client_id == "original"
            copy.send("pickled", b"second").get(timeout=20)
        producer.send("pickled", b"third").get(timeout=20)
        found = [record.value for record in read_back(broker.bootstrap_servers, "pickled", 1)]

    assert found == [b"first", b"second", b"third"]
