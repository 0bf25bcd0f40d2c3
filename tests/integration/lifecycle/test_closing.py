"""close() takes the time it is given whatever the brokers do, and says what is true."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from typing import Any

import pytest

from kprod import KafkaProducer
from kprod.errors import KprodError, ProducerClosedError
from kprod.transport.tcp import TcpBackend
from kprod.transport.tcp_transport import TcpTransport
from kprod.types import DeliveryReport, Persisted
from kprod_ext.futures import FutureRecordMetadata
from tests.support.broker_process import BrokerProcess
from tests.support.committed_records import read_back
from tests.support.tier import CAMPAIGN, one_of

LONG = 40.0
MANY = 100_000 if CAMPAIGN else 30_000
PARTITIONS = 4
TOPIC = "closing"
LATE = 0.1 if CAMPAIGN else 15.0
"""Seconds it may take longer than it was given: the first is promised, a busy machine gets more."""


class Account:
    """Sends numbered records to one topic and keeps every future. Thread: one."""

    def __init__(self, producer: KafkaProducer, topic: str, partitions: int) -> None:
        self.futures: list[FutureRecordMetadata] = []
        self._producer = producer
        self._topic = topic
        self._partitions = partitions

    def send(self, records: int, *, size: int = 80, **options: Any) -> None:
        for _ in range(records):
            number = len(self.futures)
            value = b"%0*d" % (size, number)
            self.futures.append(
                self._producer.send(
                    self._topic, value, partition=number % self._partitions, **options
                )
            )

    def check_against(self, bootstrap: str) -> Counter[str]:
        """Count the outcomes: "stored", "no" and "maybe". AssertionError: one is not true."""
        found = Counter(
            int(stored.value or b"-1")
            for stored in read_back(bootstrap, self._topic, self._partitions)
        )
        said = Counter(self._check(future, found[n]) for n, future in enumerate(self.futures))
        assert sum(found.values()) <= len(self.futures)
        return said

    def _check(self, future: FutureRecordMetadata, found: int) -> str:
        assert future.is_done, "a record was left without an outcome"
        if future.succeeded():
            assert found == 1, "said to be stored"
            return "stored"
        assert future.exception is not None
        if future.exception.persisted is Persisted.NO:
            assert found == 0, "said not to be stored"
            return "no"
        assert found <= 1, "doubled"
        return "maybe"


def knowing(broker: BrokerProcess, **options: Any) -> KafkaProducer:
    producer = KafkaProducer(bootstrap_servers=broker.bootstrap_servers, **options)
    producer.partitions_for(TOPIC)
    return producer


def seconds_of(act: Callable[[], object]) -> float:
    started = time.monotonic()
    act()
    took = time.monotonic() - started
    print(f"closed in {took * 1000:.1f} ms")
    return took


def truth_of_what_waits(
    broker: BrokerProcess, timeout: float, stop: Callable[[], object], go_on: Callable[[], object]
) -> Counter[str]:
    """Close a producer whose broker has stopped, while most of its records wait in memory."""
    # One request at most is on its way: five could carry all that is sent here.
    producer = knowing(broker, linger_ms=0, max_in_flight_requests_per_connection=1)
    account = Account(producer, TOPIC, PARTITIONS)
    account.send(1000)
    producer.flush(LONG)
    stop()
    account.send(MANY)
    assert seconds_of(partial(producer.close, timeout)) < timeout + LATE
    assert producer.close().pending == 0
    go_on()
    truth = account.check_against(broker.bootstrap_servers)
    assert truth["stored"] == 1000
    assert truth["no"] > MANY // 2
    return truth


@pytest.mark.parametrize("timeout", one_of(0.5, 0))
def test_close_in_time_while_brokers_are_down(broker: BrokerProcess, timeout: float) -> None:
    truth_of_what_waits(broker, timeout, broker.kill, broker.start)


@pytest.mark.parametrize("timeout", one_of(0.5, 0))
def test_close_in_time_while_the_broker_hangs(broker: BrokerProcess, timeout: float) -> None:
    truth = truth_of_what_waits(broker, timeout, broker.freeze, broker.thaw)
    assert truth["maybe"] > 0


# Threads that are blocked in send() ---------------------------------------------------------------


def test_calls_that_wait_for_memory_or_metadata_end_at_once(broker: BrokerProcess) -> None:
    producer = knowing(broker, buffer_memory=100_000, linger_ms=0)
    broker.freeze()

    def send_until_full() -> None:
        while True:
            producer.send(TOPIC, bytes(10_000))

    with ThreadPoolExecutor(7) as pool:
        blocked: list[Future[Any]] = [pool.submit(send_until_full) for _ in range(4)]
        while producer.metrics()["producer-metrics"]["waiting-threads"] < 4:
            time.sleep(0.001)
        blocked.append(pool.submit(producer.send, "new", b"v"))
        blocked.append(pool.submit(producer.partitions_for, "new"))
        time.sleep(0.1)  # these may be told before they wait, too; most of them wait by now
        closing = pool.submit(producer.close, LONG)  # as the broker hangs
        assert {type(each.exception(LONG)) for each in blocked} == {ProducerClosedError}
        assert not closing.done(), "they were told only when everything had ended"
        broker.thaw()
    counters = producer.metrics()["producer-metrics"]
    assert counters["buffer-available-bytes"] == counters["buffer-total-bytes"]


# Many who close -----------------------------------------------------------------------------------


def test_the_shortest_of_many_deadlines_holds(broker: BrokerProcess) -> None:
    producer = knowing(broker)
    broker.freeze()
    future = producer.send(TOPIC, b"v")
    closers = [
        threading.Thread(target=producer.close, args=(timeout,)) for timeout in (LONG, 0.1, None)
    ]
    started = time.monotonic()
    for closer in closers:
        closer.start()
    for closer in closers:
        closer.join(LONG)
    assert time.monotonic() - started < 0.1 + LATE
    assert isinstance(future.exception, ProducerClosedError)


def test_close_from_a_callback_does_not_wait_for_itself(broker: BrokerProcess) -> None:
    producer = knowing(broker)
    account = Account(producer, TOPIC, PARTITIONS)
    account.send(1)
    account.futures[0].add_both(lambda _: producer.close(0))
    with pytest.raises(ProducerClosedError):
        account.send(10**9)
    assert producer.close(LONG).pending == 0
    account.check_against(broker.bootstrap_servers)


# An exception leaves the block --------------------------------------------------------------------


class Failure(Exception):
    """What ends the block."""


def fail_after(producer: KafkaProducer, act: Callable[[], object]) -> None:
    with producer:
        act()
        raise Failure


def test_a_block_that_fails_does_not_wait_for_brokers(broker: BrokerProcess) -> None:
    producer = knowing(broker, close_timeout_ms_at_exit=200)
    account = Account(producer, TOPIC, PARTITIONS)

    def fail() -> None:
        with pytest.raises(Failure):
            fail_after(producer, partial(account.send, 1000))

    broker.freeze()
    assert seconds_of(fail) < 0.2 + LATE
    broker.thaw()
    assert account.check_against(broker.bootstrap_servers)["stored"] == 0


def test_a_block_that_fails_delivers_what_was_queued(broker: BrokerProcess) -> None:
    producer = knowing(broker, linger_ms=60_000, close_timeout_ms_at_exit=20_000)
    account = Account(producer, TOPIC, PARTITIONS)
    with pytest.raises(Failure):
        fail_after(producer, partial(account.send, 1000))
    assert account.check_against(broker.bootstrap_servers)["stored"] == 1000


# The sender is busy elsewhere ---------------------------------------------------------------------


class Stuck(TcpBackend):
    """Blocks where no backend may, as an application's own might: in ``dial``."""

    def __init__(self) -> None:
        super().__init__()
        self.goes_on, self.stuck = threading.Event(), threading.Event()
        self.goes_on.set()

    def dial(self, host: str, port: int) -> TcpTransport:
        if not self.goes_on.is_set():
            self.stuck.set()
        self.goes_on.wait(LONG)
        return super().dial(host, port)


def test_close_in_time_while_a_transport_blocks(broker: BrokerProcess) -> None:
    backend = Stuck()
    producer = knowing(broker, transport=lambda: backend)
    account = Account(producer, TOPIC, PARTITIONS)
    broker.kill()
    backend.goes_on.clear()
    account.send(1000)
    assert backend.stuck.wait(LONG)
    told: list[KprodError] = []
    account.futures[0].add_errback(told.append)
    assert seconds_of(partial(producer.close, 0.2)) < 0.2 + LATE
    assert all(future.is_done for future in account.futures)
    assert producer.close(0) == DeliveryReport(0, 1000, 0)
    backend.goes_on.set()
    assert producer.close() == DeliveryReport(0, 1000, 0)
    assert len(told) == 1
    counters = producer.metrics()["producer-metrics"]
    assert counters["buffer-available-bytes"] == counters["buffer-total-bytes"]
    broker.start()
    assert account.check_against(broker.bootstrap_servers)["stored"] == 0
