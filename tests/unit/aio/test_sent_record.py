"""The future of a record that a loop has sent, and how many one turn of the loop lets pass."""

from __future__ import annotations

import asyncio
import contextvars
import threading
from collections.abc import Awaitable, Callable, Coroutine, Generator
from functools import wraps
from typing import Any

import pytest

from kprod.buffer.delivery import SLICE, BatchDelivery, WaitingTasks
from kprod.clock import SystemClock
from kprod.types import TopicPartition
from kprod_ext.aio import LONGEST_QUEUEING, MOST, TURN, LoopTurns, OutcomeNotifier, SentRecord
from kprod_ext.futures import FutureRecordMetadata

LONG = 20.0


class Batch:
    def __init__(self, count: int, *, renews: bool = True) -> None:
        self.delivery = BatchDelivery(TopicPartition("t", 0), lambda: None)
        notifier = OutcomeNotifier(asyncio.get_running_loop(), renews=renews)
        natives = [FutureRecordMetadata(self.delivery, n, 0, 0, 0, -1) for n in range(count)]
        self.records: list[Any] = [SentRecord(notifier, native) for native in natives]

    def end(self) -> None:
        """It is stored; another thread tells."""
        thread = threading.Thread(target=self.delivery.succeed, args=(100, -1))
        thread.start()
        thread.join(LONG)


@pytest.fixture(params=[True, False], ids=["kprod", "aiokafka"])
def renews(request: pytest.FixtureRequest) -> bool:
    return bool(request.param)


def in_a_loop(test: Callable[..., Coroutine[Any, Any, None]]) -> Callable[..., None]:
    """The coroutine as a test: it is run to its end."""

    @wraps(test)
    def run(**fixtures: Any) -> None:
        asyncio.run(test(**fixtures))

    return run


async def soon(wait: Awaitable[Any]) -> Any:
    return await asyncio.wait_for(wait, LONG)


@in_a_loop
async def test_asyncio_takes_it_for_a_future_and_makes_no_task(renews: bool) -> None:
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
    assert [told.offset for told in stored] == list(range(100, 400))
    assert stored == await soon(asyncio.gather(*batch.records))


@in_a_loop
async def test_before_and_after_its_outcome_it_tells_what_asyncios_futures_do(renews: bool) -> None:
    batch = Batch(1, renews=renews)
    record = batch.records[0]
    assert not record.done()
    assert not record.cancelled()
    assert "pending" in repr(record)
    for ask in (record.result, record.exception):
        with pytest.raises(asyncio.InvalidStateError):
            ask()
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
async def test_many_waits_that_were_given_up_can_begin_anew_together() -> None:
    batch = Batch(30_000)
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(asyncio.gather(*batch.records), 0.001)
    together = asyncio.gather(*batch.records)
    asyncio.get_running_loop().call_soon(batch.end)
    assert len(await soon(together)) == 30_000


@in_a_loop
async def test_a_wait_that_was_given_up_finds_the_outcome_that_came_since() -> None:
    batch = Batch(2)
    for exceptions in (False, True):
        given_up = asyncio.gather(*batch.records, return_exceptions=exceptions)
        given_up.cancel()
        with pytest.raises(asyncio.CancelledError):
            await given_up
        assert all(record.cancelled() for record in batch.records)
    batch.end()
    assert not any(record.cancelled() for record in batch.records)
    stored = await soon(asyncio.gather(*batch.records))
    assert [told.offset for told in stored] == [100, 101]


@in_a_loop
async def test_a_task_that_is_cancelled_ends_no_other_wait() -> None:
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
async def test_in_the_drop_in_a_cancelled_future_stays_cancelled() -> None:
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
    await asyncio.sleep(0)  # the turn in which callbacks are called
    assert called == [record]
    assert (await soon(batch.records[1])).offset == 101


def test_callbacks_run_in_the_loop_in_their_contexts_and_may_fail(renews: bool) -> None:
    name: contextvars.ContextVar[str] = contextvars.ContextVar("name")

    async def main() -> None:
        batch = Batch(2, renews=renews)
        record, other = batch.records
        loop, seen, problems = asyncio.get_running_loop(), list[Any](), list[Any]()
        loop.set_exception_handler(lambda _, told: problems.append(told["exception"]))

        def note(of: Any) -> None:
            seen.append((of, name.get(), asyncio.get_running_loop()))

        def fail(_: Any) -> None:
            raise LookupError

        name.set("first")
        record.add_done_callback(fail)
        record.add_done_callback(note)
        name.set("second")
        record.add_done_callback(note)
        other.add_done_callback(note)
        other.add_done_callback(fail)
        assert other.remove_done_callback(fail) == 1
        assert other.remove_done_callback(fail) == 0
        record.add_done_callback(seen.append)
        assert record.remove_done_callback(seen.append) == 1
        last = loop.create_future()
        other.add_done_callback(last.set_result)
        batch.end()
        await soon(last)
        assert seen == [(record, "first", loop), (record, "second", loop), (other, "second", loop)]
        assert [type(problem) for problem in problems] == [LookupError]
        late = loop.create_future()
        record.add_done_callback(late.set_result)
        assert not late.done()  # soon, not at once
        assert await soon(late) is record

    asyncio.run(main())


def test_a_callback_that_ends_the_loop_keeps_the_outcome_from_no_other(renews: bool) -> None:
    """The loop is run once more: asyncio.run ends the tasks that are left."""
    called: list[Any] = []
    batches: list[Batch] = []

    def leave(_: Any) -> None:
        raise SystemExit

    async def main() -> None:
        batch = Batch(1, renews=renews)
        batches.append(batch)
        for callback in (leave, called.append, leave, called.append):
            batch.records[0].add_done_callback(callback)
        batch.end()
        await asyncio.sleep(LONG)

    loop = asyncio.new_event_loop()
    task = loop.create_task(main())
    for _ in range(2):
        with pytest.raises(SystemExit):
            loop.run_until_complete(task)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        loop.run_until_complete(task)
    loop.close()
    assert called == 2 * batches[0].records


@in_a_loop
async def test_other_threads_and_loops_may_wait_too() -> None:
    batch = Batch(1)
    record, told = batch.records[0], list[Any]()

    async def outcome() -> Any:
        return await record

    threads = [
        threading.Thread(target=lambda: told.append(record.get(LONG))),
        threading.Thread(target=lambda: told.append(asyncio.run(outcome()))),
    ]
    for thread in threads:
        thread.start()
    batch.end()
    for thread in threads:
        await asyncio.to_thread(thread.join, LONG)
    assert [stored.offset for stored in told] == [100, 100]


def test_nobody_is_told_in_a_loop_that_was_closed(renews: bool) -> None:
    made: list[Batch] = []

    async def main() -> None:
        made.append(Batch(1, renews=renews))
        made[0].records[0].add_done_callback(pytest.fail)

    asyncio.run(main())
    made[0].end()
    assert made[0].records[0].done()


@in_a_loop
async def test_no_callback_is_lost_between_asking_and_settling(renews: bool) -> None:
    for _ in range(200):
        batch = Batch(3, renews=renews)
        start = threading.Barrier(2)

        def settle(start: threading.Barrier = start, batch: Batch = batch) -> None:
            start.wait(LONG)
            batch.delivery.succeed(0, -1)

        settler = threading.Thread(target=settle)
        settler.start()
        start.wait(LONG)
        told = await soon(asyncio.gather(*batch.records))
        assert [stored.offset for stored in told] == [0, 1, 2]
        settler.join(LONG)


@in_a_loop
async def test_other_tasks_get_their_turns_while_records_that_are_done_are_awaited(
    renews: bool,
) -> None:
    """None of these awaits has anything to wait for; together they take many milliseconds."""
    batch = Batch(1, renews=renews)
    batch.end()
    turns = 0

    async def other() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    running = asyncio.create_task(other())
    for _ in range(200_000):
        await batch.records[0]
    running.cancel()
    assert turns > 1


async def ended_by(ask: Callable[[LoopTurns], Awaitable[None]], tasks: int) -> list[int]:
    """How many of so many tasks a turn of the loop lets pass, by turn; one of them is cancelled."""
    turns, passed, by_turn = LoopTurns(), 0, list[int]()

    async def pass_by() -> None:
        nonlocal passed
        await ask(turns)
        passed += 1

    made = [asyncio.create_task(pass_by()) for _ in range(tasks)]
    cancelled = made.pop(len(made) // 2)
    while passed < len(made):
        before = passed
        await asyncio.sleep(0)
        cancelled.cancel()
        by_turn.append(passed - before)
    return by_turn


def test_however_many_ask_at_once_a_turn_has_an_end() -> None:
    async def ask(turns: LoopTurns) -> None:
        if not turns.admit():
            await turns.wait()

    by_turn = asyncio.run(ended_by(ask, 3 * MOST))
    assert max(by_turn) <= MOST
    assert max(by_turn[2:]) <= TURN  # those who were told to wait
    assert sum(by_turn) in {3 * MOST - 1, 3 * MOST}


def test_records_that_take_long_end_a_turn_soon() -> None:
    async def ask(turns: LoopTurns) -> None:
        if turns.admit():
            until = SystemClock.monotonic() + LONGEST_QUEUEING
            while SystemClock.monotonic() < until:
                pass
        else:
            await turns.wait()

    assert max(asyncio.run(ended_by(ask, 300))) <= TURN


def test_a_batch_of_many_records_wakes_those_who_wait_a_slice_at_a_time() -> None:
    async def main() -> list[int]:
        loop, woken, by_turn = asyncio.get_running_loop(), 0, []
        batch = WaitingTasks(loop)

        async def wait() -> None:
            nonlocal woken
            await _Waited(batch)
            woken += 1

        tasks = [asyncio.create_task(wait()) for _ in range(3 * SLICE)]
        await asyncio.sleep(0)
        threading.Thread(target=batch.ring).start()
        while woken < len(tasks):
            before = woken
            await asyncio.sleep(0)
            by_turn.append(woken - before)
        await asyncio.gather(*tasks)
        return by_turn

    by_turn = asyncio.run(main())
    assert max(by_turn) == SLICE
    assert sum(by_turn) == 3 * SLICE


class _Waited:
    def __init__(self, batch: WaitingTasks) -> None:
        self._batch = batch

    def __await__(self) -> Generator[Any, None, None]:
        yield from self._batch.wait()
