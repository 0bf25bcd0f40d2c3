"""Every API in a child that Python, or C code, has forked: what it acknowledges is in the log."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from kprod.broker import EmbeddedBroker
from tests.support import forks
from tests.support.committed_records import committed
from tests.support.programs import run_python
from tests.support.tier import one_of

SENDING = ["native", "native-flush", "send-many", "send-arrow", "kafka", "confluent-flush"]
SENDING += ["confluent-poll", "confluent-aio", "aio", "aiokafka"]


@pytest.mark.parametrize("kind", one_of("child", "daemon"))
@pytest.mark.parametrize("fork", forks.FORKS)
def test_each_process_is_told_where_its_records_are(fork: Callable[[], int], kind: str) -> None:
    """A daemon closes what it has inherited; its own files then have the numbers of that."""
    with EmbeddedBroker(default_partitions=1) as broker:
        told = _told_by(broker, fork.__name__, kind)
        files = told.pop("files")
        found = {topic: committed(broker.bootstrap_servers, topic, 1) for topic in told}
    for topic in SENDING:
        assert told[topic] == [0, 1, 2], topic
        assert found[topic] == [b"first", b"child", b"last"], topic
    _, child, last = told["transactions"]
    assert child == 2  # after the parent's record, and the mark that it was aborted
    assert "ProducerFencedError" in last
    assert found["transactions"] == [b"child"]
    _, waited, last = told["queued"]
    assert "only the parent hears of the outcome" in waited
    assert last == [0, 1, 2, 3]
    assert found["queued"] == [b"first"] * 4
    assert all(files)
    assert bool(files) == (kind == "daemon")


def _told_by(broker: EmbeddedBroker, fork: str, kind: str) -> dict[str, Any]:
    module = "tests.support.forked_apis"
    ran = run_python("-m", module, broker.bootstrap_servers, fork, kind)
    told: dict[str, Any] = json.loads(ran.stdout)
    return told


FORKS_WITHOUT_GIL = """
import ctypes, os, sys
from kprod import KafkaProducer
from tests.support.forks import ended_within

producer = KafkaProducer(bootstrap_servers=sys.argv[1])
fork = ctypes.CDLL(None).fork  # ctypes gives the GIL up, as uWSGI does before it forks
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


def test_a_child_of_a_thread_without_the_gil_does_not_hang() -> None:
    """The sender's thread may hold the GIL when C code forks, and the child does not have it."""
    with EmbeddedBroker(default_partitions=1) as broker:
        run_python("-c", FORKS_WITHOUT_GIL, broker.bootstrap_servers)
        stored = committed(broker.bootstrap_servers, "t", 1)
    assert sorted(stored) == [b"child"] * 40 + [b"first"] * 40
