"""Awaitable futures of sent records, and how many sends one iteration of the loop admits."""

from __future__ import annotations

import asyncio
import contextvars
import threading
from collections import Counter
from collections.abc import Awaitable, Callable, Coroutine, Iterator
from functools import wraps
from typing import Any

import pytest

from kprod.buffer.delivery import SLICE, BatchDelivery, in_slices
from kprod.types import TopicPartition
from kprod_ext.aio import MOST, TURN, LoopTurns, OutcomeNotifier, SentRecord
from kprod_ext.futures import FutureRecordMetadata

LONG = 20.0


class Batch:
    def __init__(self, count: int, *, renews: bool = True) -> None:
        self.delivery = BatchDelivery(TopicPartition("t", 0), lambda: None)
        notifier = OutcomeNotifier(asyncio.get_running_loop(), renews=renews)
        natives = [FutureRecordMetadata(self.delivery, n, 0, 0, 0, -1) for n in range(count)]
        self.records: list[Any] = [SentRecord(notifier, native) for native in natives]

    def end(self) -> None:
        """Complete all records, in another thread."""
        thread = threading.Thread(target=self.delivery.succeed, args=(100, -1))
        thread.start()
        thread.join(LONG)


@pytest.fixture(params=[True, False], ids=["kprod", "aiokafka"])
def renews(request: pytest.FixtureRequest) -> bool:
    return bool(request.param)


def in_a_loop(test: Callable[..., Coroutine[Any, Any, None]]) -> Callable[..., None]:
    """Run an async test with ``asyncio.run``."""

    @wraps(test)
    def run(**fixtures: Any) -> None:
        asyncio.run(test(**fixtures))

    return run


async def soon(wait: Awaitable[Any]) -> Any:
    return await asyncio.wait_for(wait, LONG)


@in_a_loop
async def test_asyncio_accepts_it_as_a_future_without_making_a_task(renews: bool) -> None:
    batch = Batch(300, renews=renews)
    one = batch.records[0]
    assert asyncio.isfuture(one)
    assert isinstance(one, asyncio.Future)
    assert asyncio.ensure_future(one) is one
    with pytest.raises(TypeError):
        asyncio.create_task(one)  # noqa: RUF006
    together = asyncio.gather(*batch.records)
    assert len(asyncio.all_tasks()) == 1
    asyncio.get_running_loop().call_soon(batch.end)
    stored = await soon(together)
    assert [metadata.offset for metadata in stored] == list(range(100, 400))
    assert stored == await soon(asyncio.gather(*batch.records))


@in_a_loop
async def test_it_behaves_like_an_asyncio_future_before_and_after_delivery(renews: bool) -> None:
    batch = Batch(1, renews=renews)
    record = batch.records[0]
    assert not record.done()
    assert not record.cancelled()
    assert "pending" in repr(record)
    for method in (record.result, record.exception):
        with pytest.raises(asyncio.InvalidStateError):
            method()
    batch.end()
    assert (record.done(), record.exception(), record.result().offset) == (True, None, 100)
    assert record.cancel() is False
    assert record.get_loop() is asyncio.get_running_loop()
    with pytest.raises(AttributeError):
        record.no_such_name  # noqa: B018
    assert record.topic_partition == ("t", 0)  # of the native future
    assert record.is_done
    assert (await soon(record)).offset == 100


@in_a_loop
async def test_many_records_can_be_awaited_again_after_a_timeout() -> None:
    batch = Batch(30_000)
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(asyncio.gather(*batch.records), 0.001)
    together = asyncio.gather(*batch.records)
    asyncio.get_running_loop().call_soon(batch.end)
    assert len(await soon(together)) == 30_000


@in_a_loop
async def test_after_a_cancelled_wait_the_outcome_is_still_available() -> None:
    batch = Batch(2)
    for exceptions in (False, True):
        cancelled = asyncio.gather(*batch.records, return_exceptions=exceptions)
        cancelled.cancel()
        with pytest.raises(asyncio.CancelledError):
            await cancelled
        assert all(record.cancelled() for record in batch.records)
    batch.end()
    assert not any(record.cancelled() for record in batch.records)
    stored = await soon(asyncio.gather(*batch.records))
    assert [metadata.offset for metadata in stored] == [100, 101]


@in_a_loop
async def test_cancelling_a_task_does_not_cancel_other_waits() -> None:
    batch = Batch(1)

    async def outcome() -> Any:
        return await batch.records[0]

    cancelled, other = asyncio.create_task(outcome()), asyncio.create_task(outcome())
    await asyncio.sleep(0)
    cancelled.cancel()
    await asyncio.wait([cancelled])
    asyncio.get_running_loop().call_soon(batch.end)
    assert (await soon(other)).offset == 100
    assert cancelled.cancelled()


@in_a_loop
async def test_a_cancelled_future_of_the_aiokafka_api_stays_cancelled() -> None:
    batch = Batch(2, renews=False)
    record = batch.records[0]
    called: list[Any] = []
    record.add_done_callback(called.append)
    assert record.cancel("why")
    assert record.cancel() is False
    batch.end()
    with pytest.raises(asyncio.CancelledError, match="why"):
        await record
    assert record.cancelled()
    await asyncio.sleep(0)  # the iteration that calls the callbacks
    assert called == [record]
    assert (await soon(batch.records[1])).offset == 101


def test_callbacks_run_in_the_loop_in_their_contexts_even_if_one_fails(renews: bool) -> None:
    name: contextvars.ContextVar[str] = contextvars.ContextVar("name")

    async def main() -> None:
        batch = Batch(2, renews=renews)
        record, other = batch.records
        loop, calls, errors = asyncio.get_running_loop(), list[Any](), list[Any]()
        loop.set_exception_handler(lambda _, context: errors.append(context["exception"]))

        def record_call(of: Any) -> None:
            calls.append((of, name.get(), asyncio.get_running_loop()))

        def fail(_: Any) -> None:
            raise LookupError

        name.set("first")
        record.add_done_callback(fail)
        record.add_done_callback(record_call)
        name.set("second")
        record.add_done_callback(record_call)
        other.add_done_callback(record_call)
        other.add_done_callback(fail)
        assert other.remove_done_callback(fail) == 1
        assert other.remove_done_callback(fail) == 0
        record.add_done_callback(calls.append)
        assert record.remove_done_callback(calls.append) == 1
        last = loop.create_future()
        other.add_done_callback(last.set_result)
        batch.end()
        await soon(last)
        assert calls == [(record, "first", loop), (record, "second", loop), (other, "second", loop)]
        assert [type(error) for error in errors] == [LookupError]
        last_callback = loop.create_future()
        record.add_done_callback(last_callback.set_result)
        assert not last_callback.done()  # in a later iteration
        assert await soon(last_callback) is record

    asyncio.run(main())


@in_a_loop
async def test_other_threads_and_loops_can_wait_for_a_record() -> None:
    batch = Batch(1)
    record, results = batch.records[0], list[Any]()

    async def outcome() -> Any:
        return await record

    threads = [
        threading.Thread(target=lambda: results.append(record.get(LONG))),
        threading.Thread(target=lambda: results.append(asyncio.run(outcome()))),
    ]
    for thread in threads:
        thread.start()
    batch.end()
    for thread in threads:
        await asyncio.to_thread(thread.join, LONG)
    assert [stored.offset for stored in results] == [100, 100]


def test_callbacks_of_a_closed_loop_are_not_called(renews: bool) -> None:
    batches: list[Batch] = []

    async def main() -> None:
        batches.append(Batch(1, renews=renews))
        batches[0].records[0].add_done_callback(pytest.fail)

    asyncio.run(main())
    batches[0].end()
    assert batches[0].records[0].done()


@in_a_loop
async def test_no_callback_is_lost_if_delivery_races_with_awaiting(renews: bool) -> None:
    for _ in range(200):
        batch = Batch(3, renews=renews)
        start = threading.Barrier(2)

        def complete(start: threading.Barrier = start, batch: Batch = batch) -> None:
            start.wait(LONG)
            batch.delivery.succeed(0, -1)

        completer = threading.Thread(target=complete)
        completer.start()
        start.wait(LONG)
        results = await soon(asyncio.gather(*batch.records))
        assert [stored.offset for stored in results] == [0, 1, 2]
        completer.join(LONG)


@in_a_loop
async def test_awaiting_completed_records_does_not_starve_other_tasks(renews: bool) -> None:
    """These awaits complete at once; together they take many milliseconds."""
    batch = Batch(1, renews=renews)
    batch.end()
    iterations = 0

    async def other() -> None:
        nonlocal iterations
        while True:
            iterations += 1
            await asyncio.sleep(0)

    running = asyncio.create_task(other())
    for _ in range(200_000):
        await batch.records[0]
    running.cancel()
    assert iterations > 1


@in_a_loop
async def test_the_number_of_sends_per_iteration_is_limited() -> None:
    turns, done, by_iteration = LoopTurns(), 0, list[int]()

    async def send() -> None:
        nonlocal done
        if not turns.admit():
            await turns.wait()
        done += 1

    tasks = [asyncio.create_task(send()) for _ in range(3 * MOST)]
    cancelled = tasks.pop(len(tasks) // 2)
    while done < len(tasks):
        before = done
        await asyncio.sleep(0)
        cancelled.cancel()
        by_iteration.append(done - before)
    assert max(by_iteration) <= MOST
    assert max(by_iteration[2:]) <= TURN  # the tasks that had to wait


@in_a_loop
async def test_the_tasks_of_a_large_batch_are_woken_in_slices() -> None:
    iteration, steps = 0, list[int]()

    def work() -> Iterator[None]:
        for _ in range(3 * SLICE):
            steps.append(iteration)
            yield

    in_slices(asyncio.get_running_loop(), work())
    while len(steps) < 3 * SLICE:
        await asyncio.sleep(0)
        iteration += 1
    assert max(Counter(steps).values()) == SLICE
