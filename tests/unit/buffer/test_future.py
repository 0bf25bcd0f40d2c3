"""A record's future behaves as kafka-python's, and raises its own copy of an error."""

from __future__ import annotations

import asyncio
import concurrent.futures
import gc
import sys
import weakref
from collections.abc import Callable
from contextlib import suppress

import pytest

from kprod.buffer.delivery import BatchDelivery
from kprod.errors import (
    BrokerError,
    ConnectionLost,
    KafkaTimeoutError,
    KprodError,
    RecordTooLargeError,
)
from kprod.types import Persisted, RecordMetadata, TopicPartition
from kprod_ext.futures import FutureRecordMetadata
from tests.support.partition_queues import new_queue
from tests.support.scripted_producer import cluster_of
from tests.support.sender_rig import rig_of
from tests.unit.buffer.deliveries import TP, future_of, new_delivery

ERROR = BrokerError(7, "t-3")


def test_a_future_takes_48_bytes_and_is_not_tracked_by_gc(delivery: BatchDelivery) -> None:
    """Without a GIL the header of every object is larger."""
    future = appended(delivery)
    own = sys.getsizeof(future) - object.__basicsize__
    assert (16 + own, gc.is_tracked(future)) == (48, False)
    references = sys.getrefcount(delivery)
    del future
    assert sys.getrefcount(delivery) == references - 1


def appended(delivery: BatchDelivery) -> FutureRecordMetadata:
    queue = new_queue(delivery_type=lambda *_: delivery)
    future: FutureRecordMetadata = queue.append(7, b"k", b"value", ()).future
    return future


def test_a_stored_record_has_its_metadata(delivery: BatchDelivery) -> None:
    future = future_of(delivery)
    delivery.succeed(100, -1)
    assert (future.is_done, future.succeeded(), future.failed()) == (True, True, False)
    expected = RecordMetadata("t", 3, TP, 102, 1000, None, 3, -1, 5)
    assert future.value == future.get() == future.get(timeout=0) == expected
    assert future.exception is None
    assert repr(future) == "<FutureRecordMetadata t-3 succeeded>"
    stamped = new_delivery()
    stamped.succeed(100, 55)
    assert future_of(stamped).get().timestamp == 55, "the append time of the broker"


@pytest.mark.parametrize(
    ("error", "retriable"), [(ERROR, True), (RecordTooLargeError("too large"), False)]
)
def test_a_failed_record_has_its_error_and_whether_it_is_retriable(
    delivery: BatchDelivery, error: KprodError, retriable: bool
) -> None:
    future = future_of(delivery)
    delivery.fail(error)
    assert (future.is_done, future.succeeded(), future.failed()) == (True, False, True)
    assert (future.value, str(future.exception)) == (None, str(error))
    assert future.retriable() is retriable
    with pytest.raises(type(error)) as caught:
        future.get()
    assert str(caught.value) == str(error)
    assert repr(future) == "<FutureRecordMetadata t-3 failed>"


@pytest.mark.parametrize("timeout", [0, 0.01])
def test_get_times_out_and_keeps_the_outcome(delivery: BatchDelivery, timeout: float) -> None:
    future = future_of(delivery)
    with pytest.raises(KafkaTimeoutError, match=r"t-3 after [\d.]+ s; it is still being sent"):
        future.get(timeout)
    delivery.succeed(0, -1)
    assert future.get(timeout).offset == 2


class Settable:
    """A future that is settled as kafka-python's."""

    def __init__(self) -> None:
        self.calls: list[tuple[str, object]] = []

    def success(self, value: object) -> None:
        self.calls.append(("success", value))

    def failure(self, error: object) -> None:
        self.calls.append(("failure", error))


@pytest.mark.parametrize("stored", [True, False])
@pytest.mark.parametrize("late", [True, False])
def test_all_callbacks_get_the_outcome(delivery: BatchDelivery, stored: bool, late: bool) -> None:
    future, other = future_of(delivery), Settable()
    results: list[object] = []
    done: list[object] = []

    def settle() -> None:
        if stored:
            delivery.succeed(100, -1)
        else:
            delivery.fail(ERROR)

    if late:
        settle()
    future.add_both(results.append)
    future.add_done_callback(done.append)
    assert future.chain(other) is future
    if not late:
        settle()
    outcome = str(future.value if stored else ERROR)
    assert [str(what) for what in results] == [outcome]
    assert done == [future]
    how = "success" if stored else "failure"
    assert [(way, str(what)) for way, what in other.calls] == [(how, outcome)]


def test_extra_arguments_of_a_callback_precede_the_outcome(delivery: BatchDelivery) -> None:
    calls: list[tuple[object, ...]] = []

    def record(*args: object, **kwargs: object) -> None:
        calls.append((*args, kwargs))

    future = future_of(delivery).add_callback(record, "a", b="c").add_errback(record, "d")
    delivery.succeed(100, -1)
    assert calls == [("a", future.value, {"b": "c"})]


@pytest.mark.parametrize("kind", [ValueError, SystemExit, KeyboardInterrupt, GeneratorExit])
def test_an_exception_in_a_callback_is_only_logged(
    delivery: BatchDelivery, kind: type[BaseException], caplog: pytest.LogCaptureFixture
) -> None:
    def fail(_: object) -> None:
        raise kind("in a callback")

    results: list[RecordMetadata] = []
    future_of(delivery).add_callback(fail).add_callback(results.append)
    delivery.succeed(100, -1)
    future_of(delivery).add_callback(fail)
    assert len(results) == 1
    assert len(caplog.records) == 2
    assert "in a callback" in caplog.text


def test_as_concurrent_works_with_concurrent_futures() -> None:
    deliveries = [new_delivery() for _ in range(3)]
    futures = [future_of(delivery).as_concurrent() for delivery in deliveries]
    deliveries[2].succeed(100, -1)
    deliveries[0].fail(ERROR)
    done, pending = concurrent.futures.wait(futures, timeout=0)
    assert (done, pending) == ({futures[0], futures[2]}, {futures[1]})
    deliveries[1].succeed(200, -1)
    assert set(concurrent.futures.as_completed(futures, timeout=0)) == set(futures)
    assert futures[1].result() == future_of(deliveries[1]).get()
    assert str(futures[0].exception()) == str(ERROR)


def test_a_kept_future_does_not_keep_the_buffer_of_the_producer() -> None:
    """The garbage collector does not track futures, so none may be part of a cycle."""
    rig = rig_of(cluster_of())
    future = rig.queue()
    assert rig.run(future.succeeded)
    accumulator = weakref.ref(rig.sender.accumulator)
    del rig
    gc.collect()
    assert accumulator() is None
    assert future.get(0).offset == 0


def failed_future(tp: TopicPartition = TP) -> FutureRecordMetadata:
    """A future made by compiled code, so untracked by the garbage collector."""
    queue = new_queue(tp)
    future: FutureRecordMetadata = queue.append(0, None, b"v", ()).future
    error = ConnectionLost("gone")
    error.persisted = Persisted.MAYBE
    error.add_note("a note")
    error.__cause__ = OSError(104, "reset")
    future.delivery.fail(error)
    return future


def by_get(future: FutureRecordMetadata) -> None:
    future.get()


def by_hand(future: FutureRecordMetadata) -> None:
    error = future.exception
    assert error is not None
    raise error


def by_errback(future: FutureRecordMetadata) -> None:
    def raise_it(error: KprodError) -> None:
        try:
            raise error
        except KprodError:
            assert future.failed()

    future.add_errback(raise_it)


def by_as_concurrent(future: FutureRecordMetadata) -> None:
    future.as_concurrent().result(0)


def by_await(future: FutureRecordMetadata) -> None:
    async def wait() -> None:
        await future

    asyncio.run(wait())


def raise_and_forget(way: Callable[[FutureRecordMetadata], None], tp: TopicPartition) -> None:
    future = failed_future(tp)
    with suppress(KprodError):
        way(future)


@pytest.mark.parametrize("way", [by_get, by_hand, by_errback, by_as_concurrent, by_await])
def test_a_raised_error_keeps_no_batch(way: Callable[[FutureRecordMetadata], None]) -> None:
    tp = TopicPartition(way.__name__, 0)
    for _ in range(3):
        raise_and_forget(way, tp)
    gc.collect()
    left = [found for found in gc.get_objects() if isinstance(found, BatchDelivery)]
    assert [delivery for delivery in left if delivery.tp == tp] == []


def test_every_caller_gets_a_copy_of_the_error() -> None:
    future = failed_future()
    errors: list[KprodError] = []
    future.add_errback(errors.append).add_errback(errors.append)
    for _ in range(2):
        with pytest.raises(ConnectionLost) as caught:
            future.get()
        errors.append(caught.value)
    errors += [error for error in (future.exception, future.exception) if error is not None]
    assert len({id(error) for error in errors}) == 6
    for error in errors:
        assert type(error) is ConnectionLost
        assert (str(error), error.persisted) == ("gone", Persisted.MAYBE)
        assert error.__notes__ == ["a note"]
        assert isinstance(error.__cause__, OSError)
