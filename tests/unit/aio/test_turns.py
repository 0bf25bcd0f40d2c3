"""Many records at once: what is done for them in one turn of the loop has a bound."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable, Generator
from typing import Any

from kprod.buffer.delivery import SLICE, WaitingTasks
from kprod.clock import SystemClock
from kprod_ext.aio import LONGEST_QUEUEING, MOST, TURN, LoopTurns


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
