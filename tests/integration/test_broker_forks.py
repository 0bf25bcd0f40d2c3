"""A forked child can neither stop an embedded broker nor harm its files."""

from __future__ import annotations

import os
from collections.abc import Callable

import pytest

from kprod import KafkaProducer
from kprod.broker import EmbeddedBroker
from tests.support.forks import by_python, in_child
from tests.support.programs import run_python

BROKER = {"topics": {"t": 1}}
PROGRAM = """
import os, sys, warnings
from kprod import KafkaProducer
from kprod.broker import EmbeddedBroker

warnings.simplefilter("ignore", DeprecationWarning)  # os.fork() with threads
with EmbeddedBroker(topics={"t": 1}) as broker:
    child = os.fork()
    if child == 0:
        sys.exit(3)  # leaves the block and runs atexit handlers
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 3
    with KafkaProducer(bootstrap_servers=broker.bootstrap_servers) as producer:
        producer.send("t", b"x").get(60)
    names = os.listdir(broker.data_dir)
    directory = broker.data_dir
print("t-0" in names, directory.exists())
"""


def write_record(broker: EmbeddedBroker) -> int:
    with KafkaProducer(bootstrap_servers=broker.bootstrap_servers) as producer:
        return producer.send("t", b"x").get(60).offset


def test_a_child_that_exits_removes_nothing() -> None:
    done = run_python("-c", PROGRAM)
    assert (done.stdout, done.stderr) == ("True False\n", "")


def leave(broker: EmbeddedBroker) -> None:
    broker.__exit__(None, None, None)


@pytest.mark.parametrize("end", [EmbeddedBroker.stop, EmbeddedBroker.kill, leave])
def test_a_child_cannot_stop_the_broker(
    end: Callable[[EmbeddedBroker], None], broker: EmbeddedBroker
) -> None:
    with KafkaProducer(bootstrap_servers=broker.bootstrap_servers) as producer:
        producer.send("t", b"x").get(60)
        assert in_child(by_python, lambda: end(broker)) == "None"
        assert producer.send("t", b"x").get(60).offset == 1
    assert broker.data_dir.exists()
    assert broker.running
    assert len(broker.records("t")) == 2


def test_a_child_can_use_the_broker_only_as_a_client(broker: EmbeddedBroker) -> None:
    assert in_child(by_python, lambda: write_record(broker)) == "0"
    assert in_child(by_python, lambda: broker.running) == "False"
    for call in (lambda: broker.records("t"), lambda: broker.create_topic("u")):
        error = in_child(by_python, call)
        assert error.startswith("IllegalStateError: the broker runs in the process that")


def test_a_child_holds_neither_the_port_nor_the_lock(broker: EmbeddedBroker) -> None:
    reading, writing = os.pipe()
    running, running_writer = os.pipe()
    child = by_python()
    if child == 0:
        os.close(writing)
        os.write(running_writer, b"x")
        os.read(reading, 1)  # until the parent is done
        os._exit(0)
    os.close(reading)
    os.read(running, 1)
    assert write_record(broker) == 0
    broker.stop()
    broker.start()
    assert write_record(broker) == 1
    for end in (writing, running, running_writer):
        os.close(end)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
