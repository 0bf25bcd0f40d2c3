"""A single waiting caller runs the sender loop itself; behaviour is otherwise the same."""

from __future__ import annotations

import inspect
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
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


class RecordingBackend(TcpBackend):
    def __init__(self) -> None:
        super().__init__()
        self.polling_threads: list[int] = []
        self.before_poll: Callable[[], object] = int

    def poll(self, timeout: float | None) -> list[Readiness]:
        self.polling_threads.append(threading.get_ident())
        self.before_poll()
        return super().poll(timeout)


class SingleCaller:
    """A producer with a single caller."""

    def __init__(self, bootstrap: str, **options: Any) -> None:
        self.backend = RecordingBackend()
        self.producer = KafkaProducer(
            bootstrap_servers=bootstrap, transport=lambda: self.backend, **options
        )
        self.producer.partitions_for(TOPIC)

    def send(self, value: bytes = b"v") -> FutureRecordMetadata:
        return self.producer.send(TOPIC, value)

    def runs_sender_loop(self) -> bool:
        """Whether this thread ran the sender loop for the next record."""
        before = len(self.backend.polling_threads)
        self.send().get(LONG)
        return threading.get_ident() in self.backend.polling_threads[before:]

    def take_over(self) -> None:
        """Send until the sender thread leaves its loop to this thread.

        Without a pause: after a few milliseconds the sender thread would take over again.
        """
        deadline = time.monotonic() + LONG
        while not self.runs_sender_loop():
            assert time.monotonic() < deadline, "the sender thread never leaves its loop"


@pytest.fixture
def caller(broker: BrokerProcess) -> Iterator[SingleCaller]:
    caller = SingleCaller(broker.bootstrap_servers)
    yield caller
    broker.thaw()
    caller.producer.close(LONG)


def wait_until_done(future: FutureRecordMetadata) -> None:
    """Poll instead of waiting, so that this thread does not run the sender loop."""
    await_true(lambda: future.is_done, LONG)


def test_a_single_waiting_caller_runs_the_sender_loop(caller: SingleCaller) -> None:
    caller.take_over()
    others = sum(not caller.runs_sender_loop() for _ in range(100))
    assert others < 50  # on a busy machine the sender thread may run, too
    caller.producer.flush(LONG)


@pytest.mark.parametrize("linger_ms", [0, 5, 50])
def test_records_without_a_waiting_caller_are_sent_by_the_sender_thread(
    broker: BrokerProcess, linger_ms: int
) -> None:
    caller = SingleCaller(broker.bootstrap_servers, linger_ms=linger_ms)
    caller.take_over()
    for _ in range(5):
        wait_until_done(caller.send())
        caller.runs_sender_loop()
    caller.producer.close(LONG)


def test_close_ends_a_caller_that_runs_the_sender_loop(broker: BrokerProcess) -> None:
    caller = SingleCaller(broker.bootstrap_servers)
    caller.take_over()
    broker.freeze()
    try:
        closing = threading.Timer(0.1, caller.producer.close, (0.1,))
        closing.start()
        with pytest.raises(ProducerClosedError):
            caller.send().get(LONG)
        closing.join(LONG)
    finally:
        broker.thaw()


def test_an_exception_of_a_signal_handler_is_not_logged_as_an_internal_error(
    caller: SingleCaller, broker: BrokerProcess, caplog: pytest.LogCaptureFixture
) -> None:
    def raise_error(number: int, frame: FrameType | None) -> None:
        raise ValueError("raised")

    before = signal.signal(signal.SIGUSR1, raise_error)
    try:
        caller.take_over()
        broker.freeze()
        future = caller.send()
        threading.Timer(0.05, os.kill, (os.getpid(), signal.SIGUSR1)).start()
        with pytest.raises(ValueError, match="raised"):
            future.get(LONG)
    finally:
        broker.thaw()
        signal.signal(signal.SIGUSR1, before)
    future.get(LONG)
    assert not caplog.records


def test_a_caller_near_the_recursion_limit_does_not_run_the_loop(caller: SingleCaller) -> None:
    caller.take_over()
    here = len(inspect.stack(0))

    def runs_sender_loop(deeper: int) -> bool:
        return runs_sender_loop(deeper - 1) if deeper else caller.runs_sender_loop()

    assert not runs_sender_loop(sys.getrecursionlimit() - here - 150)


def test_code_called_by_the_sender_loop_must_not_wait_for_records(
    caller: SingleCaller, broker: BrokerProcess
) -> None:
    refused: list[IllegalStateError] = []

    def wait() -> None:
        for call in (future.get, caller.producer.flush):
            try:
                call(LONG)
            except IllegalStateError as error:
                refused.append(error)
        broker.thaw()

    caller.take_over()
    broker.freeze()
    future = caller.send()
    caller.backend.before_poll = wait
    future.get(LONG)
    assert len(refused) >= 2
