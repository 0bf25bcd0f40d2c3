"""Many records at once: what is done for them in one turn of the loop has a bound."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Generator
from typing import Any

from kprod.aio.turns import TURN, Turns
from kprod.buffer.awaiting import SLICE, WaitingTasks


def test_however_many_ask_at_once_a_turn_lets_few_through() -> None:
    async def main() -> list[int]:
        turns, passed, by_turn = Turns(), 0, []

        async def ask() -> None:
            nonlocal passed
            if not turns.admit():
                await turns.wait()
            passed += 1

        tasks = [asyncio.create_task(ask()) for _ in range(1000)]
        cancelled = tasks.pop(500)
        while passed < len(tasks):
            before = passed
            await asyncio.sleep(0)
            cancelled.cancel()
            by_turn.append(passed - before)
        return by_turn

    by_turn = asyncio.run(main())
    assert max(by_turn) <= TURN
    assert sum(by_turn) == 999


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
