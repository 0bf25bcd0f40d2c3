"""Who waits alone takes the sender's turns: that is faster, and nothing else is different."""

from __future__ import annotations

import inspect
import logging
import os
import signal
import sys
import threading
import time
from collections.abc import Iterator
from types import FrameType
from typing import Any

import pytest

from kprod import KafkaProducer
from kprod.errors import IllegalStateError, ProducerClosedError
from kprod.transport.base import Readiness
from kprod.transport.tcp import TcpBackend
from kprod_ext.futures import FutureRecordMetadata
from tests.support.broker_process import BrokerProcess
from tests.support.waiting import await_true

TOPIC = "lone"
PARTITIONS = 1
LONG = 20.0


class Watched(TcpBackend):
    def __init__(self) -> None:
        super().__init__()
        self.waited: list[int] = []

    def poll(self, timeout: float | None) -> list[Readiness]:
        self.waited.append(threading.get_ident())
        return super().poll(timeout)


class Lone:
    """A producer, and what it is to wait for it alone."""

    def __init__(self, bootstrap: str, **options: Any) -> None:
        self.backend = Watched()
        self.producer = KafkaProducer(
            bootstrap_servers=bootstrap, transport=lambda: self.backend, **options
        )
        self.producer.partitions_for(TOPIC)

    def send(self, value: bytes = b"v") -> FutureRecordMetadata:
        return self.producer.send(TOPIC, value)

    def waits_itself(self) -> bool:
        """Whether the next record's outcome came by this thread's own work."""
        before = len(self.backend.waited)
        self.send().get(LONG)
        return threading.get_ident() in self.backend.waited[before:]

    def settle_in(self) -> None:
        """Wait until the sender's thread leaves the work to us.

        Without a pause: after a few milliseconds the thread would take the work again.
        """
        deadline = time.monotonic() + LONG
        while not self.waits_itself():
            assert time.monotonic() < deadline, "the thread never leaves the work to who waits"


@pytest.fixture
def lone(broker: BrokerProcess) -> Iterator[Lone]:
    lone = Lone(broker.bootstrap_servers)
    yield lone
    broker.thaw()
    lone.producer.close(LONG)


def wait_until_done(future: FutureRecordMetadata) -> None:
    """Without waiting for it: nobody does the sender's work."""
    await_true(lambda: future.is_done, LONG)


def test_who_waits_alone_does_the_work(lone: Lone) -> None:
    lone.settle_in()
    others = sum(not lone.waits_itself() for _ in range(100))
    assert others < 50  # on a busy machine the thread may come in between
    lone.producer.flush(LONG)


@pytest.mark.parametrize("linger_ms", [0, 5, 50])
def test_records_nobody_waits_for_are_sent_as_ever(broker: BrokerProcess, linger_ms: int) -> None:
    lone = Lone(broker.bootstrap_servers, linger_ms=linger_ms)
    lone.settle_in()
    for _ in range(5):
        wait_until_done(lone.send())
        lone.waits_itself()
    lone.producer.close(LONG)


def test_another_thread_closes_meanwhile(broker: BrokerProcess) -> None:
    lone = Lone(broker.bootstrap_servers)
    lone.settle_in()
    broker.freeze()
    try:
        closing = threading.Timer(0.1, lone.producer.close, (0.1,))
        closing.start()
        with pytest.raises(ProducerClosedError):
            lone.send().get(LONG)
        closing.join(LONG)
    finally:
        broker.thaw()


def test_what_a_handler_raises_is_not_taken_for_a_mistake_of_ours(
    lone: Lone, broker: BrokerProcess, caplog: pytest.LogCaptureFixture
) -> None:
    def strike(number: int, frame: FrameType | None) -> None:
        raise ValueError("struck")

    before = signal.signal(signal.SIGUSR1, strike)
    try:
        lone.settle_in()
        broker.freeze()
        future = lone.send()
        threading.Timer(0.05, os.kill, (os.getpid(), signal.SIGUSR1)).start()
        with pytest.raises(ValueError, match="struck"):
            future.get(LONG)
    finally:
        broker.thaw()
        signal.signal(signal.SIGUSR1, before)
    future.get(LONG)
    assert not caplog.records


def test_who_is_near_the_end_of_the_stack_leaves_the_work_to_the_thread(lone: Lone) -> None:
    lone.settle_in()
    here = len(inspect.stack(0))

    def waits_itself(deeper: int) -> bool:
        return waits_itself(deeper - 1) if deeper else lone.waits_itself()

    assert not waits_itself(sys.getrecursionlimit() - here - 150)


class Meddling(logging.Handler):
    """A log handler that thaws the broker, sends what is logged, and waits: the wait is refused."""

    def __init__(self, lone: Lone, broker: BrokerProcess) -> None:
        super().__init__()
        self._broker = broker
        self.refused: list[type[BaseException]] = []
        self.futures: list[FutureRecordMetadata] = []
        self._lone = lone

    def emit(self, record: logging.LogRecord) -> None:
        self._broker.thaw()
        self.futures.append(self._lone.send(b"logged"))
        for wait in (self.futures[-1].get, self._lone.producer.flush):
            try:
                wait(LONG)
            except IllegalStateError as error:
                self.refused.append(type(error))
        with_no_wait = self._lone.producer.metrics()
        assert with_no_wait


def test_who_is_called_within_the_work_must_not_wait_for_it(broker: BrokerProcess) -> None:
    lone = Lone(broker.bootstrap_servers, request_timeout_ms=300)
    meddling = Meddling(lone, broker)
    lone.settle_in()
    logger = logging.getLogger("kprod.sender.connection_log")
    logger.addHandler(meddling)
    propagates, logger.propagate = logger.propagate, False
    try:
        broker.freeze()
        lone.send().get(LONG)
    finally:
        logger.removeHandler(meddling)
        logger.propagate = propagates
    lone.producer.close(LONG)
    assert meddling.refused[:2] == [IllegalStateError, IllegalStateError]
    assert all(future.succeeded() for future in meddling.futures)
