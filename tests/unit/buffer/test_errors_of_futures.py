"""The error of a batch is many records' error: who raises it gets one of his own.

An error that was raised refers to its traceback, and so to the caller's variables, among them the
future. The garbage collector does not know futures, so nothing may lead from them back there.
"""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Callable
from contextlib import suppress

import pytest

from kprod.buffer.delivery import BatchDelivery
from kprod.errors import ConnectionLost, KprodError
from kprod.types import Persisted, TopicPartition
from kprod_ext.futures import FutureRecordMetadata
from tests.support.partition_queues import new_queue

TP = TopicPartition("t", 3)


def failed_future(tp: TopicPartition = TP) -> FutureRecordMetadata:
    """One made as those of a producer are: by compiled code, unknown to the garbage collector."""
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


def by_twin(future: FutureRecordMetadata) -> None:
    future.as_concurrent().result(0)


def by_await(future: FutureRecordMetadata) -> None:
    async def wait() -> None:
        await future

    asyncio.run(wait())


WAYS = [by_get, by_hand, by_errback, by_twin, by_await]


def raise_and_forget(way: Callable[[FutureRecordMetadata], None], tp: TopicPartition) -> None:
    future = failed_future(tp)
    with suppress(KprodError):
        way(future)


@pytest.mark.parametrize("way", WAYS)
def test_nothing_is_left_of_an_error_that_was_raised(
    way: Callable[[FutureRecordMetadata], None],
) -> None:
    tp = TopicPartition(way.__name__, 0)
    for _ in range(3):
        raise_and_forget(way, tp)
    gc.collect()
    left = [found for found in gc.get_objects() if isinstance(found, BatchDelivery)]
    assert [delivery for delivery in left if delivery.tp == tp] == []


def test_everybody_gets_an_error_of_his_own_that_says_the_same() -> None:
    future = failed_future()
    told: list[KprodError] = []
    future.add_errback(told.append).add_errback(told.append)
    for _ in range(2):
        with pytest.raises(ConnectionLost) as caught:
            future.get()
        told.append(caught.value)
    told += [error for error in (future.exception, future.exception) if error is not None]
    assert len({id(error) for error in told}) == 6
    for error in told:
        assert type(error) is ConnectionLost
        assert (str(error), error.persisted) == ("gone", Persisted.MAYBE)
        assert error.__notes__ == ["a note"]
        assert isinstance(error.__cause__, OSError)
