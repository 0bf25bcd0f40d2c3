"""Tasks of an asyncio loop await records."""

from __future__ import annotations

import asyncio
import gc
import logging
import threading
import warnings
import weakref
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from kprod.buffer.delivery import BatchDelivery, in_slices
from kprod.errors import BrokerError
from kprod.types import RecordMetadata
from kprod_ext.futures import FutureRecordMetadata
from tests.unit.buffer.deliveries import TP, future_of, new_delivery

ERROR = BrokerError(7, "t-3")
LONG = 20.0


def futures_of(delivery: BatchDelivery, count: int) -> list[FutureRecordMetadata]:
    return [future_of(delivery, index) for index in range(count)]


def elsewhere(act: Callable[[], object]) -> None:
    """Run it in another thread, as the sender would, and wait for the end."""
    thread = threading.Thread(target=act)
    thread.start()
    thread.join(LONG)


async def outcome_of(future: FutureRecordMetadata) -> RecordMetadata:
    return await future


async def awaiting(*futures: FutureRecordMetadata) -> list[asyncio.Task[RecordMetadata]]:
    """Tasks that await the futures, and have started."""
    tasks = [asyncio.create_task(outcome_of(future)) for future in futures]
    await asyncio.sleep(0)
    return tasks


class CountingLoop(asyncio.SelectorEventLoop):
    """Counts calls from other threads, each of which costs a system call."""

    calls = 0

    def call_soon_threadsafe(  # type: ignore[override]
        self, callback: Any, *args: Any, context: Any = None
    ) -> asyncio.Handle:
        self.calls += 1
        return super().call_soon_threadsafe(callback, *args, context=context)


def test_awaiting_a_finished_record_needs_no_event_loop(delivery: BatchDelivery) -> None:
    [future] = futures_of(delivery, 1)
    delivery.succeed(100, -1)
    with pytest.raises(StopIteration) as stopped:
        next(future.__await__())  # no loop runs here
    assert stopped.value.value == future.get()


def test_many_tasks_are_woken_by_one_call_into_the_loop(delivery: BatchDelivery) -> None:
    """Also those of another batch that ends before the loop runs."""
    loop, other = CountingLoop(), new_delivery()

    async def run() -> list[int]:
        tasks = await awaiting(*futures_of(delivery, 500), *futures_of(other, 500))
        before = loop.calls
        elsewhere(lambda: (delivery.succeed(0, -1), other.succeed(500, -1)))
        assert loop.calls - before == 1
        return [stored.offset for stored in await asyncio.gather(*tasks)]

    try:
        assert loop.run_until_complete(run()) == list(range(1000))
    finally:
        loop.close()


def test_a_cancelled_task_does_not_affect_others(delivery: BatchDelivery) -> None:
    async def run() -> None:
        first, second = futures_of(delivery, 2)
        cancelled, also_first, other = await awaiting(first, first, second)
        cancelled.cancel()
        await asyncio.wait([cancelled])
        assert cancelled.cancelled()
        elsewhere(lambda: delivery.succeed(100, -1))
        assert (await also_first).offset == 100
        assert (await other).offset == 101
        assert (await first).offset == 100

    asyncio.run(run())


def test_callbacks_run_although_a_waiting_loop_was_closed(delivery: BatchDelivery) -> None:
    loop = asyncio.new_event_loop()
    [future] = futures_of(delivery, 1)
    task = loop.create_task(outcome_of(future))
    loop.run_until_complete(asyncio.sleep(0))
    task.cancel()
    loop.run_until_complete(asyncio.sleep(0))
    loop.close()
    results: list[object] = []
    future.add_callback(results.append)
    delivery.succeed(100, -1)
    assert results == [future.value]


def test_an_interrupted_loop_does_not_block_later_tasks(delivery: BatchDelivery) -> None:
    """A signal handler raises while tasks are woken; the application runs its loop again."""

    def interrupted() -> Iterator[None]:
        yield
        raise KeyboardInterrupt

    async def sleep() -> None:
        in_slices(asyncio.get_running_loop(), interrupted())
        await asyncio.sleep(0)
        await asyncio.sleep(0)

    async def wait() -> RecordMetadata:
        (task,) = await awaiting(*futures_of(delivery, 1))
        elsewhere(lambda: delivery.succeed(40, -1))
        return await asyncio.wait_for(task, LONG)

    loop = asyncio.new_event_loop()
    try:
        interrupted_task = loop.create_task(sleep())
        with pytest.raises(KeyboardInterrupt):
            loop.run_until_complete(interrupted_task)
        loop.run_until_complete(interrupted_task)
        assert loop.run_until_complete(wait()).offset == 40
    finally:
        loop.close()


def test_tasks_of_a_split_batch_get_the_outcome_of_their_half(delivery: BatchDelivery) -> None:
    first, second = new_delivery(), new_delivery()

    async def run() -> None:
        futures = futures_of(delivery, 4)
        before = await awaiting(futures[0], futures[3])
        delivery.split_into([(0, first), (3, second)])
        [after] = await awaiting(futures[1])
        elsewhere(lambda: first.succeed(100, -1))
        assert (await after).offset == 101  # need not wait for the other half
        elsewhere(lambda: second.fail(ERROR))
        assert (await before[0]).offset == 100
        with pytest.raises(BrokerError):
            await before[1]

    asyncio.run(run())


def test_a_batch_is_flushed_once_after_all_tasks_have_sent() -> None:
    events: list[str] = []
    delivery = BatchDelivery(TP, lambda: events.append("flushed"))

    async def ask(future: FutureRecordMetadata) -> None:
        events.append("sent")
        await future

    async def run() -> None:
        tasks = [asyncio.create_task(ask(future)) for future in futures_of(delivery, 3)]
        for _ in range(3):
            await asyncio.sleep(0)
        delivery.succeed(0, -1)
        await asyncio.gather(*tasks)

    asyncio.run(run())
    assert events == ["sent", "sent", "sent", "flushed"]


def test_no_wake_up_is_lost_between_awaiting_and_settling() -> None:
    async def run() -> None:
        for _ in range(300):
            delivery, start = new_delivery(), threading.Barrier(2)

            def settle(
                start: threading.Barrier = start, delivery: BatchDelivery = delivery
            ) -> None:
                start.wait(LONG)
                delivery.succeed(0, -1)

            settler = threading.Thread(target=settle)
            settler.start()
            futures = futures_of(delivery, 3)
            start.wait(LONG)
            results = await asyncio.wait_for(asyncio.gather(*futures), LONG)
            assert [stored.offset for stored in results] == [0, 1, 2]
            settler.join(LONG)

    asyncio.run(run())


def test_a_finished_batch_keeps_no_reference_to_the_loop(delivery: BatchDelivery) -> None:
    """The collector does not track futures: no cycle may outlive their batch."""
    loop = asyncio.new_event_loop()
    task = loop.create_task(outcome_of(futures_of(delivery, 1)[0]))
    loop.run_until_complete(asyncio.sleep(0))
    delivery.succeed(0, -1)
    loop.run_until_complete(task)
    loop.close()
    ended = weakref.ref(loop)
    del task, loop
    gc.collect()
    assert ended() is None


def test_an_unobserved_failed_record_causes_no_output(
    delivery: BatchDelivery, caplog: pytest.LogCaptureFixture, capsys: pytest.CaptureFixture[str]
) -> None:
    async def run() -> None:
        [future] = futures_of(delivery, 1)
        [task] = await awaiting(future)
        task.cancel()
        future.as_concurrent()
        delivery.fail(ERROR)
        await asyncio.sleep(0)

    with caplog.at_level(logging.DEBUG), warnings.catch_warnings():
        warnings.simplefilter("error")
        asyncio.run(run())
        gc.collect()
    assert not [entry for entry in caplog.records if entry.levelno > logging.DEBUG]
    assert capsys.readouterr() == ("", "")
