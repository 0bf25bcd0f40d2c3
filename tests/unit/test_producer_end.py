"""A flushed, closed or dropped producer completes every record and frees its resources."""

from __future__ import annotations

import gc
import threading
import time
from collections.abc import Iterator
from contextlib import suppress

import pytest

from kprod import KafkaProducer
from kprod.errors import KprodTimeoutError, ProducerClosedError
from kprod.types import DeliveryReport, Persisted
from kprod.wire.versions import ApiKey
from kprod_ext.futures import FutureRecordMetadata
from tests.support.scripted_cluster import ReceivedRequest, ScriptedBroker, refuse, silence
from tests.support.scripted_producer import producer_before

LONG = 20.0


@pytest.fixture
def producer(broker: ScriptedBroker) -> Iterator[KafkaProducer]:
    """A producer with metadata of its topic, and a linger longer than any test."""
    producer = producer_before(broker.cluster, linger_ms=60_000, delivery_timeout_ms=120_000)
    producer.send("t", b"first").get(LONG)
    yield producer
    producer.close(0)


def silence_broker(broker: ScriptedBroker, producer: KafkaProducer) -> None:
    """Leave all further requests unanswered."""
    broker.next(ApiKey.PRODUCE, *[silence] * 100)
    assert producer.bootstrap_connected()


# Flush --------------------------------------------------------------------------------------------
def test_flush_counts_failed_records(broker: ScriptedBroker, producer: KafkaProducer) -> None:
    broker.next(ApiKey.PRODUCE, refuse(87))
    future = producer.send("t", b"v")
    assert producer.flush(LONG) == DeliveryReport(1, 1, 0)
    assert future.failed()


def test_flush_times_out_and_leaves_the_records_queued(
    broker: ScriptedBroker, producer: KafkaProducer
) -> None:
    silence_broker(broker, producer)
    futures = [producer.send("t", b"v", partition=0) for _ in range(3)]
    started = time.monotonic()
    with pytest.raises(KprodTimeoutError, match=r"3 records pending after 0\.05 s"):
        producer.flush(0.05)
    assert 0.05 <= time.monotonic() - started < LONG
    assert not any(future.is_done for future in futures)


def test_flush_does_not_wait_for_records_sent_later(
    broker: ScriptedBroker, producer: KafkaProducer
) -> None:
    before = producer.send("t", b"v", partition=0)
    flushed = threading.Thread(target=producer.flush, args=(LONG,))
    flushed.start()
    while flushed.is_alive():
        producer.send("t", b"later", partition=1)
    assert before.is_done


def test_flush_waits_for_running_callbacks(broker: ScriptedBroker, producer: KafkaProducer) -> None:
    running, go_on = threading.Event(), threading.Event()
    requests: list[ReceivedRequest] = []

    def hold(_: ScriptedBroker, request: ReceivedRequest) -> bytes:
        requests.append(request)
        return b""

    def answer_both(broker: ScriptedBroker, request: ReceivedRequest) -> bytes:
        return broker.usual(requests[0]) + broker.usual(request)

    def block(_: object) -> None:
        running.set()
        go_on.wait(LONG)

    broker.next(ApiKey.PRODUCE, hold, answer_both)
    future = producer.send("t", b"v", partition=0).add_both(block)
    with pytest.raises(KprodTimeoutError):
        future.get(0)  # sends it without lingering
    while not requests:
        time.sleep(0.001)
    with suppress(KprodTimeoutError):
        producer.send("t", b"next", partition=1).get(0)
    assert running.wait(LONG)
    flushed = threading.Thread(target=producer.flush, args=(LONG,))
    flushed.start()
    flushed.join(0.05)
    assert flushed.is_alive()
    go_on.set()
    flushed.join(LONG)
    assert not flushed.is_alive()


# Close --------------------------------------------------------------------------------------------
def test_closing_twice_gives_the_same_report(producer: KafkaProducer) -> None:
    report = producer.close()
    assert producer.close() == report
    assert producer.close(0) == report
    assert producer.flush(0) == report


def test_close_without_waiting_completes_all_records(
    broker: ScriptedBroker, producer: KafkaProducer
) -> None:
    silence_broker(broker, producer)
    on_wire = producer.send("t", b"v", partition=0)
    with pytest.raises(KprodTimeoutError):
        on_wire.get(0)  # sends it without lingering
    while broker.count(ApiKey.PRODUCE) < 2:
        time.sleep(0.001)
    queued = [producer.send("t", b"v", partition=0) for _ in range(1000)]
    producer.close(0)
    assert persisted(on_wire) is Persisted.MAYBE
    assert {persisted(future) for future in queued} == {Persisted.NO}
    assert producer.close() == DeliveryReport(1, 1001, 0)


def persisted(future: FutureRecordMetadata) -> Persisted:
    with pytest.raises(ProducerClosedError) as caught:
        future.get(LONG)
    return caught.value.persisted


def test_close_ends_threads_and_connections_and_frees_memory(producer: KafkaProducer) -> None:
    """The callback thread exists from the start: later there might be no memory for it."""
    name = f"kprod-callbacks-{producer.config.client_id}"
    assert [each.daemon for each in threading.enumerate() if each.name == name] == [True]
    producer.send("t", b"v")
    producer.close()
    named = [thread.name for thread in threading.enumerate()]
    assert not any(producer.config.client_id in name for name in named)
    counters = producer.metrics()["producer-metrics"]
    assert counters["buffer-available-bytes"] == counters["buffer-total-bytes"]
    assert not producer.bootstrap_connected()


# Dropped ------------------------------------------------------------------------------------------


def lingering(broker: ScriptedBroker) -> KafkaProducer:
    return producer_before(broker.cluster, linger_ms=60_000, client_id="dropped")


def has_ended(future: FutureRecordMetadata) -> bool:
    """Whether the record completes and the threads of its producer end without a caller."""
    for _ in range(2000):
        running = [t.name for t in threading.enumerate() if t.name.endswith("-dropped")]
        if future.is_done and not running:
            return True
        threading.Event().wait(0.01)
    return False


def test_records_of_a_dropped_producer_are_delivered(broker: ScriptedBroker) -> None:
    producer = lingering(broker)
    future = producer.send("t", b"v")
    with pytest.warns(ResourceWarning, match="client_id=dropped> was not closed"):
        del producer
    assert has_ended(future)
    assert future.succeeded()


@pytest.mark.filterwarnings(
    "error::ResourceWarning", "ignore::pytest.PytestUnraisableExceptionWarning"
)
def test_a_dropped_producer_ends_if_warnings_are_errors(broker: ScriptedBroker) -> None:
    producer = lingering(broker)
    future = producer.send("t", b"v")
    del producer
    assert has_ended(future)


def test_a_dropped_producer_in_a_reference_cycle_ends(broker: ScriptedBroker) -> None:
    outcomes: list[object] = []
    producer = lingering(broker)
    producer.itself = producer  # type: ignore[attr-defined]
    future = producer.send("t", b"v").add_both(outcomes.append)
    del producer
    with pytest.warns(ResourceWarning):
        gc.collect()
    assert has_ended(future)
    assert len(outcomes) == 1


def test_a_producer_referenced_by_a_callback_lives_until_it_has_run(broker: ScriptedBroker) -> None:
    sent: list[FutureRecordMetadata] = []
    producer = lingering(broker)
    future = producer.send("t", b"v").add_both(
        lambda _, known=producer: sent.append(known.send("t", b"from the callback"))
    )
    with pytest.raises(KprodTimeoutError):
        future.get(0)  # sends it without lingering
    del producer
    with pytest.warns(ResourceWarning):
        assert has_ended(future)
    assert has_ended(sent[0])
    assert sent[0].succeeded()


def test_a_producer_closed_by_a_callback_is_dropped_without_a_warning(
    broker: ScriptedBroker,
) -> None:
    producer = lingering(broker)
    future = producer.send("t", b"v").add_both(lambda _, known=producer: known.close(0))
    producer.flush(LONG)
    del producer
    gc.collect()
    assert has_ended(future)
