"""close() respects its timeout whatever brokers do, and reports true outcomes."""

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
"""Tolerated seconds beyond the timeout: 0.1 is promised, a busy machine gets more."""


class Account:
    """Sends numbered records to a topic and keeps every future. Not thread-safe."""

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
        """Count the outcomes "stored", "no" and "maybe"; AssertionError if one is wrong."""
        found = Counter(
            int(stored.value or b"-1")
            for stored in read_back(bootstrap, self._topic, self._partitions)
        )
        outcomes = Counter(self._check(future, found[n]) for n, future in enumerate(self.futures))
        assert sum(found.values()) <= len(self.futures)
        return outcomes

    def _check(self, future: FutureRecordMetadata, found: int) -> str:
        assert future.is_done, "a record has no outcome"
        if future.succeeded():
            assert found == 1, "reported as stored"
            return "stored"
        assert future.exception is not None
        if future.exception.persisted is Persisted.NO:
            assert found == 0, "reported as not stored"
            return "no"
        assert found <= 1, "duplicated"
        return "maybe"


def connected_producer(broker: BrokerProcess, **options: Any) -> KafkaProducer:
    producer = KafkaProducer(bootstrap_servers=broker.bootstrap_servers, **options)
    producer.partitions_for(TOPIC)
    return producer


def seconds_of(act: Callable[[], object]) -> float:
    started = time.monotonic()
    act()
    took = time.monotonic() - started
    print(f"closed in {took * 1000:.1f} ms")
    return took


def outcomes_of_close(
    broker: BrokerProcess, timeout: float, stop: Callable[[], object], resume: Callable[[], object]
) -> Counter[str]:
    """Close a producer whose broker has stopped, with most records still queued."""
    # At most one request in flight: five could carry all records.
    producer = connected_producer(broker, linger_ms=0, max_in_flight_requests_per_connection=1)
    account = Account(producer, TOPIC, PARTITIONS)
    account.send(1000)
    producer.flush(LONG)
    stop()
    account.send(MANY)
    assert seconds_of(partial(producer.close, timeout)) < timeout + LATE
    assert producer.close().pending == 0
    resume()
    outcomes = account.check_against(broker.bootstrap_servers)
    assert outcomes["stored"] == 1000
    assert outcomes["no"] > MANY // 2
    return outcomes


@pytest.mark.parametrize("timeout", one_of(0.5, 0))
def test_close_in_time_while_brokers_are_down(broker: BrokerProcess, timeout: float) -> None:
    outcomes_of_close(broker, timeout, broker.kill, broker.start)


@pytest.mark.parametrize("timeout", one_of(0.5, 0))
def test_close_in_time_while_the_broker_hangs(broker: BrokerProcess, timeout: float) -> None:
    outcomes = outcomes_of_close(broker, timeout, broker.freeze, broker.thaw)
    assert outcomes["maybe"] > 0


# Threads blocked in send() ------------------------------------------------------------------------


def test_close_ends_calls_that_wait_for_memory_or_metadata(broker: BrokerProcess) -> None:
    producer = connected_producer(broker, buffer_memory=100_000, linger_ms=0)
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
        time.sleep(0.1)  # most of these wait by now; they may also be refused before
        closing = pool.submit(producer.close, LONG)  # waits, since the broker hangs
        assert {type(each.exception(LONG)) for each in blocked} == {ProducerClosedError}
        assert not closing.done(), "they were ended only after the close"
        broker.thaw()
    counters = producer.metrics()["producer-metrics"]
    assert counters["buffer-available-bytes"] == counters["buffer-total-bytes"]


# Concurrent closes --------------------------------------------------------------------------------


def test_the_shortest_timeout_of_concurrent_closes_applies(broker: BrokerProcess) -> None:
    producer = connected_producer(broker)
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


def test_close_in_a_callback_does_not_deadlock(broker: BrokerProcess) -> None:
    producer = connected_producer(broker)
    account = Account(producer, TOPIC, PARTITIONS)
    account.send(1)
    account.futures[0].add_both(lambda _: producer.close(0))
    with pytest.raises(ProducerClosedError):
        account.send(10**9)
    assert producer.close(LONG).pending == 0
    account.check_against(broker.bootstrap_servers)


# Exceptions in the context manager ----------------------------------------------------------------


class Failure(Exception):
    """Ends the context manager."""


def fail_after(producer: KafkaProducer, act: Callable[[], object]) -> None:
    with producer:
        act()
        raise Failure


def test_an_exception_in_the_block_does_not_wait_for_brokers(broker: BrokerProcess) -> None:
    producer = connected_producer(broker, close_timeout_ms_at_exit=200)
    account = Account(producer, TOPIC, PARTITIONS)

    def fail() -> None:
        with pytest.raises(Failure):
            fail_after(producer, partial(account.send, 1000))

    broker.freeze()
    assert seconds_of(fail) < 0.2 + LATE
    broker.thaw()
    assert account.check_against(broker.bootstrap_servers)["stored"] == 0


def test_an_exception_in_the_block_delivers_queued_records(broker: BrokerProcess) -> None:
    producer = connected_producer(broker, linger_ms=60_000, close_timeout_ms_at_exit=20_000)
    account = Account(producer, TOPIC, PARTITIONS)
    with pytest.raises(Failure):
        fail_after(producer, partial(account.send, 1000))
    assert account.check_against(broker.bootstrap_servers)["stored"] == 1000


# The sender thread is blocked ---------------------------------------------------------------------


class BlockingBackend(TcpBackend):
    """Blocks in ``dial``, as a faulty backend of an application might."""

    def __init__(self) -> None:
        super().__init__()
        self.released, self.blocked = threading.Event(), threading.Event()
        self.released.set()

    def dial(self, host: str, port: int) -> TcpTransport:
        if not self.released.is_set():
            self.blocked.set()
        self.released.wait(LONG)
        return super().dial(host, port)


def test_close_in_time_while_the_transport_blocks(broker: BrokerProcess) -> None:
    backend = BlockingBackend()
    producer = connected_producer(broker, transport=lambda: backend)
    account = Account(producer, TOPIC, PARTITIONS)
    broker.kill()
    backend.released.clear()
    account.send(1000)
    assert backend.blocked.wait(LONG)
    errors: list[KprodError] = []
    account.futures[0].add_errback(errors.append)
    assert seconds_of(partial(producer.close, 0.2)) < 0.2 + LATE
    assert all(future.is_done for future in account.futures)
    assert producer.close(0) == DeliveryReport(0, 1000, 0)
    backend.released.set()
    assert producer.close() == DeliveryReport(0, 1000, 0)
    assert len(errors) == 1
    counters = producer.metrics()["producer-metrics"]
    assert counters["buffer-available-bytes"] == counters["buffer-total-bytes"]
    broker.start()
    assert account.check_against(broker.bootstrap_servers)["stored"] == 0
