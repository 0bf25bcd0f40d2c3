"""Delivery callbacks run in a thread of their own, in order; they may not wait for themselves."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import pytest

from kprod import KafkaProducer, ProducerRecord, RecordMetadata
from kprod.buffer.callbacks import MOST_WAITING
from kprod.errors import (
    BrokerError,
    BufferFullError,
    IllegalStateError,
    PartitionError,
    ProducerClosedError,
)
from kprod.intake.partitioner import MURMUR2
from kprod.types import TopicPartition
from kprod.wire.versions import ApiKey
from tests.support.scripted_cluster import ScriptedBroker, refuse, silence
from tests.support.scripted_producer import producer_before

LONG = 20.0


@pytest.fixture
def producer(broker: ScriptedBroker) -> Iterator[KafkaProducer]:
    producer = producer_before(broker.cluster, linger_ms=0)
    yield producer
    producer.close(LONG)


class Blocking:
    def __init__(self) -> None:
        self.begun = threading.Event()
        self.released = threading.Event()

    def __call__(self, _: object) -> None:
        self.begun.set()
        self.released.wait(LONG)


@pytest.fixture
def blocking(producer: KafkaProducer) -> Iterator[Blocking]:
    """Blocks the producer's callbacks until released, at the latest at the end of the test."""
    callback = Blocking()
    producer.send("t", b"v").add_both(callback)
    assert callback.begun.wait(LONG)
    yield callback
    callback.released.set()


def in_a_callback(producer: KafkaProducer, act: Callable[[], Any]) -> Any:
    results: list[Any] = []
    done = threading.Event()

    def run(_: object) -> None:
        try:
            results.append(act())
        except BaseException as error:
            results.append(error)
        done.set()

    producer.send("t", b"v").add_both(run)
    assert done.wait(LONG)
    return results[0]


def test_records_are_delivered_while_a_callback_blocks(
    producer: KafkaProducer, blocking: Blocking
) -> None:
    futures = [producer.send("t", b"v", partition=number % 2) for number in range(100)]
    assert all(future.get(LONG).offset >= 0 for future in futures)


def test_callbacks_of_a_partition_run_in_order_despite_a_failure(
    broker: ScriptedBroker, producer: KafkaProducer
) -> None:
    called: list[int] = []
    broker.next(ApiKey.PRODUCE, ScriptedBroker.usual, refuse(87), ScriptedBroker.usual)
    for number in range(300):
        producer.send("t", b"%d" % number, partition=0).add_both(
            lambda _, number=number: called.append(number)
        )
    producer.flush(LONG)
    assert called == list(range(300))


# What a callback may do ---------------------------------------------------------------------------


def test_a_callback_may_wait_for_memory(broker: ScriptedBroker) -> None:
    options = {"buffer_memory": 2_000, "batch_size": 1_000, "linger_ms": 0}
    with producer_before(broker.cluster, **options) as producer:
        sent: list[RecordMetadata] = []

        def send_another(number: int, _: object) -> None:
            if number:
                future = producer.send("t", bytes(800))
                future.add_callback(sent.append).add_callback(partial(send_another, number - 1))

        for _ in range(10):
            producer.send("t", bytes(800)).add_callback(partial(send_another, 5))
        while len(sent) < 50:
            producer.flush(LONG)


def test_flush_and_close_inside_a_callback_are_refused(producer: KafkaProducer) -> None:
    for name, timeouts in (("flush", (None, 1, 0)), ("close", (None, 1))):
        for timeout in timeouts:
            refused = in_a_callback(producer, partial(getattr(producer, name), timeout))
            assert isinstance(refused, IllegalStateError)
            assert f"{name}() inside a delivery callback" in str(refused)
    assert producer.send("t", b"still open").get(LONG).offset >= 0


# Flush and close wait for callbacks ---------------------------------------------------------------


def test_close_with_a_timeout_leaves_callbacks_to_the_background(
    producer: KafkaProducer, blocking: Blocking
) -> None:
    called = threading.Event()
    producer.send("t", b"v").add_both(lambda _: called.set())
    assert producer.close(0.05).pending == 0
    assert not called.is_set()
    blocking.released.set()
    assert called.wait(LONG)


# Too many callbacks -------------------------------------------------------------------------------


def test_send_blocks_while_too_many_callbacks_are_queued(broker: ScriptedBroker) -> None:
    producer = producer_before(broker.cluster, linger_ms=0, max_block_ms=100)
    blocking = Blocking()
    producer.send("t", b"v").add_both(blocking)
    assert blocking.begun.wait(LONG)
    future = producer.send("t", b"v")
    for _ in range(MOST_WAITING):
        future.add_both(lambda _: None)
    assert future.delivery.wait(LONG)  # get() would wait for the callbacks as well

    def send_until_the_queue_is_full() -> None:
        for _ in range(1000):  # an outcome may be visible before its callbacks are queued
            producer.send("t", b"v")
            time.sleep(0.001)

    with pytest.raises(BufferFullError, match="delivery callbacks are waiting to run"):
        send_until_the_queue_is_full()
    counted = producer.metrics()["producer-metrics"]
    assert counted["buffer-exhausted-total"] == 0, "the callback queue was full, not the memory"
    blocking.released.set()
    producer.flush(LONG)
    assert producer.send("t", b"v").get(LONG).offset >= 0
    producer.close()


class Interceptor:
    """Records the calls of an interceptor with the partition of the record."""

    def __init__(self) -> None:
        self.calls: list[tuple[str, int | None, type]] = []

    def on_send(self, record: ProducerRecord) -> ProducerRecord:
        self.calls.append(("sends", record.partition, type(None)))
        return record

    def on_send_error(self, record: ProducerRecord, error: BaseException) -> None:
        self.calls.append(("failed", record.partition, type(error)))


def test_interceptors_see_the_explicit_or_the_chosen_partition_as_in_java(
    broker: ScriptedBroker,
) -> None:
    interceptor = Interceptor()
    broker.next(ApiKey.PRODUCE, refuse(87), refuse(87))
    producer = producer_before(broker.cluster, linger_ms=0, interceptors=[interceptor])
    with producer:
        for partition in (None, 1):
            with pytest.raises(BrokerError):
                producer.send("t", b"v", key=b"k", partition=partition).get(LONG)
        producer.flush()
    chosen = MURMUR2.partition(b"k", 2)
    expected = [("sends", None), ("failed", chosen), ("sends", 1), ("failed", 1)]
    assert [call[:2] for call in interceptor.calls] == expected


def test_an_interceptor_sees_the_partition_if_memory_runs_out(broker: ScriptedBroker) -> None:
    interceptor = Interceptor()
    broker.next(ApiKey.PRODUCE, silence, silence, silence, silence)
    options: dict[str, Any] = {"buffer_memory": 20_000, "batch_size": 10_000, "max_block_ms": 50}
    producer = producer_before(broker.cluster, linger_ms=0, interceptors=[interceptor], **options)

    def fill() -> None:
        for _ in range(10):
            producer.send("t", bytes(9000), key=b"k")

    with pytest.raises(BufferFullError) as caught:
        fill()
    chosen = MURMUR2.partition(b"k", 2)
    assert caught.value.topic_partition == TopicPartition("t", chosen)
    assert interceptor.calls[-1] == ("failed", chosen, BufferFullError)
    producer.close(0)


# The callback of one call -------------------------------------------------------------------------

Calls = list[tuple[RecordMetadata, Exception | None]]


@pytest.mark.parametrize("before", [0, 1], ids=["python path", "compiled path"])
def test_the_callback_of_send_is_called_once_with_metadata_or_error(
    broker: ScriptedBroker, producer: KafkaProducer, before: int
) -> None:
    calls: Calls = []

    def send(partition: int) -> Any:
        callback = lambda *arguments: calls.append(arguments)  # noqa: E731
        return producer.send("t", b"v", partition=partition, callback=callback)

    for _ in range(before):
        producer.send("t", b"v", partition=1).get(LONG)
    stored = [send(1) for _ in range(2)]
    producer.flush(LONG)
    assert calls == [(future.get(), None) for future in stored]
    assert [metadata.offset for metadata, _ in calls] == [before, before + 1]
    calls.clear()
    broker.next(ApiKey.PRODUCE, refuse(87))
    refused = send(1)
    producer.flush(LONG)
    ((metadata, error),) = calls
    assert isinstance(error, BrokerError)
    assert str(error) == str(refused.exception)
    assert metadata == RecordMetadata("t", 1, TopicPartition("t", 1), -1, -1, None, -1, -1, -1)
    calls.clear()
    with pytest.raises(PartitionError):
        send(9)
    producer.close(LONG)
    with pytest.raises(ProducerClosedError):
        send(1)
    assert calls == [], "errors raised by send are not reported twice"
