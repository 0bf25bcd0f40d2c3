"""What asyncio alone takes for each record, with no Kafka at all: the rate no client can exceed.

    python -m benchmarks.limits.asyncio_limit [--loop uvloop] [--records N]

Each way is what a program does that awaits ``send`` and gathers the futures, with nothing sent.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import importlib
import time
from collections.abc import Awaitable, Callable
from typing import Any, Final

RECORDS: Final = 200_000
ROUNDS: Final = 3


async def _sent(future: Any) -> Any:
    return future


async def coroutines(records: int) -> None:
    """await of a coroutine that returns at once"""
    for _ in range(records):
        await _sent(None)


async def futures(records: int) -> None:
    """asyncio's future, made and settled"""
    loop = asyncio.get_running_loop()
    for future in [loop.create_future() for _ in range(records)]:
        future.set_result(None)


async def gathered(records: int) -> None:
    """both, and gather of all"""
    loop = asyncio.get_running_loop()
    made = [await _sent(loop.create_future()) for _ in range(records)]
    for future in made:
        future.set_result(None)
    await asyncio.gather(*made)


async def awaited(records: int) -> None:
    """both, and await of one after the other"""
    loop = asyncio.get_running_loop()
    made = [await _sent(loop.create_future()) for _ in range(records)]
    for future in made:
        future.set_result(None)
    for future in made:
        await future


async def tasks(records: int) -> None:
    """gather of coroutines: a task for each"""
    await asyncio.gather(*(_sent(None) for _ in range(records)))


WAYS: Final[tuple[Callable[[int], Awaitable[None]], ...]] = (
    coroutines,
    futures,
    gathered,
    awaited,
    tasks,
)


def measured(runner: asyncio.Runner, way: Callable[[int], Any], records: int) -> float:
    """CPU seconds of the best of some rounds."""
    taken = []
    for _ in range(ROUNDS):
        gc.collect()
        started = time.process_time()
        runner.run(way(records))
        taken.append(time.process_time() - started)
    return min(taken)


def main() -> None:
    """Print a line for each way."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.limits.asyncio_limit")
    parser.add_argument("--records", type=int, default=RECORDS)
    parser.add_argument("--loop", choices=("asyncio", "uvloop"), default="asyncio")
    options = parser.parse_args()
    factory = None
    if options.loop == "uvloop":
        factory = importlib.import_module("uvloop").new_event_loop  # not required by anything
    with asyncio.Runner(loop_factory=factory) as runner:
        for way in WAYS:
            seconds = measured(runner, way, options.records)
            each = 1e6 * seconds / options.records
            print(f"{each:6.2f} us  {options.records / seconds:12,.0f}/s  {way.__doc__}")


if __name__ == "__main__":
    main()
