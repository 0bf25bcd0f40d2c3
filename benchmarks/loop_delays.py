"""For how long kprod.aio keeps the other tasks of a loop waiting, in the cases that are hard.

Run as ``python -m benchmarks.loop_delays [--rounds N] [--only NAME ...]``. Beside the tasks that
send runs one that sleeps five milliseconds at a time; the longest by which it wakes too late is
the figure. Every round of a case is a process of its own; the broker is another.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import socket
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from typing import Any, Final

from benchmarks.provenance import command_line, provenance
from benchmarks.result_file import write_result
from benchmarks.spread import significant, spread_of
from kprod.cli.child_process import embedded_broker

PERIOD: Final = 0.005
TOPIC: Final = "t"
MANY: Final = 100_000
TOPICS: Final = 500
ROUNDS: Final = 5
SECONDS: Final = 120
LIMIT_MS: Final = 20
VALUE: Final = b"x" * 100

Case = Callable[[str], Awaitable[None]]


@contextlib.asynccontextmanager
async def opened(address: str, **options: Any) -> AsyncIterator[Any]:
    """A producer that need not reach anybody."""
    from kprod.aio import Producer

    producer = Producer(bootstrap_servers=address, **options)
    try:
        yield producer
    finally:
        await producer.close(0)


async def refused(sends: Sequence[Awaitable[Any]]) -> None:
    """Wait for all; each fails, for that is the case."""
    outcomes = await asyncio.gather(*sends, return_exceptions=True)
    assert all(isinstance(outcome, Exception) for outcome in outcomes)


def address_of(bound: socket.socket) -> str:
    """Where a socket of this machine is."""
    return f"127.0.0.1:{bound.getsockname()[1]}"


async def dead_broker(_: str) -> None:
    """A thousand tasks send where nobody listens."""
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))  # and does not listen
        async with opened(address_of(held), max_block_ms=2_000) as producer:
            await refused([producer.send(TOPIC, VALUE) for _ in range(1_000)])


async def hanging_broker(_: str) -> None:
    """A thousand tasks send where somebody takes connections and never answers."""
    with socket.create_server(("127.0.0.1", 0)) as silent:
        async with opened(address_of(silent), max_block_ms=2_000) as producer:
            await refused([producer.send(TOPIC, VALUE) for _ in range(1_000)])


async def full_buffer(address: str) -> None:
    """Twenty megabytes go through a buffer of one."""
    async with opened(address, buffer_memory=1_048_576) as producer:
        for _ in range(20_000):
            await producer.send(TOPIC, VALUE * 10)
        await producer.flush()


async def full_buffer_of_many_tasks(address: str) -> None:
    """Two thousand tasks send a kilobyte each through a buffer of 64 KiB."""
    async with opened(address, buffer_memory=65_536) as producer:
        await asyncio.gather(*(producer.send(TOPIC, VALUE * 10) for _ in range(2_000)))
        await producer.flush()


async def unknown_topics(address: str) -> None:
    """Two tasks for each of five hundred topics that there are not."""
    async with opened(address, max_block_ms=2_000, allow_auto_create_topics=False) as producer:
        names = [f"unknown-{number % TOPICS}" for number in range(2 * TOPICS)]
        await refused([producer.send(name, VALUE) for name in names])


async def new_topics(address: str) -> None:
    """One task for each of five hundred topics that are made by being asked for."""
    async with opened(address) as producer:
        stamp = time.monotonic_ns()
        names = [f"new-{stamp}-{number}" for number in range(TOPICS)]
        await asyncio.gather(*(producer.send_and_wait(name, VALUE) for name in names))


async def awaited_by_send_all(address: str) -> None:
    """One call sends a hundred thousand records and waits for each."""
    async with opened(address) as producer:
        assert len(await producer.send_all(TOPIC, (VALUE for _ in range(MANY)))) == MANY


async def awaited_one_by_one(address: str) -> None:
    """A hundred thousand futures are kept, and awaited one after the other."""
    async with opened(address) as producer:
        futures = [await producer.send(TOPIC, VALUE) for _ in range(MANY)]
        for future in futures:
            await future


async def awaited_by_aiokafka_s_name(address: str) -> None:
    """The same with AIOKafkaProducer, whose futures are asyncio's."""
    from kprod.aio import AIOKafkaProducer

    async with AIOKafkaProducer(bootstrap_servers=address) as producer:
        futures = [await producer.send(TOPIC, VALUE) for _ in range(MANY)]
        for future in futures:
            await future


CASES: Final[dict[str, Case]] = {
    case.__name__.replace("_", "-"): case
    for case in (
        *(dead_broker, hanging_broker, full_buffer, full_buffer_of_many_tasks),
        *(unknown_topics, new_topics),
        *(awaited_by_send_all, awaited_one_by_one, awaited_by_aiokafka_s_name),
    )
}


async def worst_delay(case: Case, address: str) -> float:
    """The longest by which a ticker woke too late beside a case, in milliseconds."""
    import kprod.aio  # noqa: F401 - importing takes longer than what is measured

    worst = 0.0

    async def tick() -> None:
        nonlocal worst
        while True:
            before = time.perf_counter()
            await asyncio.sleep(PERIOD)
            worst = max(worst, time.perf_counter() - before - PERIOD)

    ticker = asyncio.ensure_future(tick())
    await asyncio.sleep(0)
    await case(address)
    ticker.cancel()
    return worst * 1000


def measured(name: str, address: str) -> float:
    """One round of a case, in a process of its own."""
    command = [sys.executable, "-m", "benchmarks.loop_delays", "--turn", name, address]
    ran = subprocess.run(command, capture_output=True, text=True, timeout=SECONDS, check=False)
    if ran.returncode != 0:
        raise AssertionError(f"{name}:\n{ran.stderr}")
    return float(json.loads(ran.stdout))


def rounds_of(names: Sequence[str], rounds: int) -> Iterator[tuple[str, float]]:
    """Every case in every round, in turns."""
    with embedded_broker(TOPIC, 6) as broker:
        for _ in range(rounds):
            for name in names:
                yield name, measured(name, broker.address())


def main() -> int:
    """Measure and store; the exit code."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.loop_delays")
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    parser.add_argument("--only", nargs="+", choices=CASES, default=list(CASES), metavar="NAME")
    parser.add_argument("--turn", nargs=2, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.turn:
        name, address = options.turn
        print(json.dumps(asyncio.run(worst_delay(CASES[name], address))))
        return 0
    origin = provenance()
    taken: dict[str, list[float]] = {name: [] for name in options.only}
    for name, delay in rounds_of(options.only, options.rounds):
        taken[name].append(delay)
        print(f"{name:28} {delay:6.1f} ms", flush=True)
    worst = {name: max(delays) for name, delays in taken.items()}
    partial = len(options.only) < len(CASES)
    write_result(
        "loop-delays-quick" if partial else "loop-delays",
        question="For how long does kprod.aio keep the other tasks of a loop waiting?",
        command=command_line("benchmarks.loop_delays"),
        origin=origin,
        settings={"rounds": options.rounds, "period_ms": PERIOD * 1000, "limit_ms": LIMIT_MS},
        figures={
            name: {
                "case": (CASES[name].__doc__ or "").strip(),
                "worst_ms": significant(worst[name]),
                "by_round_ms": spread_of(delays).as_json(),
            }
            for name, delays in taken.items()
        },
    )
    print(f"worst of all {max(worst.values()):.1f} ms; wanted: at most {LIMIT_MS}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
