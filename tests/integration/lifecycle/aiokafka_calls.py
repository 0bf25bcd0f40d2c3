"""The calls of an AIOKafkaProducer around its end: a table for aiokafka and for kprod.

A program: ``python -m tests.integration.lifecycle.aiokafka_calls MODULE SERVERS`` prints what
becomes of each row with ``aiokafka`` or ``kprod.aio``. The first is the judge.
"""

from __future__ import annotations

import asyncio
import logging
import warnings
from collections.abc import Awaitable, Callable
from typing import Any

from tests.support.forked_rows import Row, main, outcome

Call = Callable[[Any], Awaitable[Any]]

CALLS: dict[str, Call] = {
    "send": lambda p: p.send("t", b"value"),
    "send_and_wait": lambda p: p.send_and_wait("t", b"value"),
    "flush": lambda p: p.flush(),
    "partitions_for": lambda p: p.partitions_for("t"),
    "start": lambda p: p.start(),
    "stop": lambda p: p.stop(),
}


async def told(call: Call, producer: Any) -> str:
    try:
        found = await call(producer)
    except Exception as error:
        return type(error).__name__
    return "Future" if asyncio.isfuture(found) else outcome(lambda: found)


def row(work: Callable[[Any], Awaitable[Any]]) -> Callable[[Any, str], Any]:
    def run(module: Any, servers: str) -> Any:
        async def main() -> Any:
            producer = module.AIOKafkaProducer(bootstrap_servers=servers, linger_ms=5)
            await producer.start()
            found = await work(producer)
            await producer.stop()
            return found

        return asyncio.run(main())

    return run


def after_stop(call: Call) -> Callable[[Any], Awaitable[Any]]:
    async def run(producer: Any) -> str:
        await producer.send_and_wait("t", b"value")
        await producer.stop()
        return await told(call, producer)

    return run


def inside(call: Call) -> Callable[[Any], Awaitable[Any]]:
    """The call in a task that a callback of a record's future begins."""

    async def run(producer: Any) -> str:
        begun = asyncio.get_running_loop().create_future()
        future = await producer.send("t", b"value")
        future.add_done_callback(
            lambda _: begun.set_result(asyncio.ensure_future(told(call, producer)))
        )
        said: str = await (await begun)
        return said

    return run


async def four_stops(producer: Any) -> Any:
    futures = [await producer.send("t", b"value") for _ in range(100)]
    heard = await asyncio.gather(*(told(CALLS["stop"], producer) for _ in range(4)))
    return [heard, all(future.done() and not future.exception() for future in futures)]


async def flush_and_stop(producer: Any) -> Any:
    futures = [await producer.send("t", b"value") for _ in range(100)]
    heard = await asyncio.gather(*(told(CALLS[name], producer) for name in ("flush", "stop")))
    return [heard, all(future.done() and not future.exception() for future in futures)]


async def stop_under_load(producer: Any) -> Any:
    """The tasks that send are refused, and each record that was taken has an outcome."""
    futures: list[Any] = []

    async def send() -> str:
        while True:
            try:
                futures.append(await producer.send("t", b"value"))
            except Exception as error:
                return type(error).__name__
            await asyncio.sleep(0)

    tasks = [asyncio.ensure_future(send()) for _ in range(4)]
    await asyncio.sleep(0.3)
    stopped = await told(CALLS["stop"], producer)
    refused = await asyncio.gather(*tasks)
    return [stopped, refused, all(future.done() for future in futures)]


CLOSED = "ProducerClosed"
OVER = "a producer that was stopped stays stopped, and says so"
AFTER: dict[str, tuple[Any, Any, str]] = {
    "send": (CLOSED, None, ""),
    "send_and_wait": (CLOSED, None, ""),
    "flush": ("None", None, ""),
    "partitions_for": ("set", None, ""),
    "start": ("None", CLOSED, OVER),
    "stop": ("None", None, ""),
}
INSIDE = {"send": "Future", "send_and_wait": "RecordMetadata", "flush": "None", "stop": "None"}
INSIDE |= {"partitions_for": "set", "start": "None"}
ROWS = [
    *(Row(f"{name} after stop", row(after_stop(CALLS[name])), *AFTER[name]) for name in CALLS),
    *(Row(f"{name} begun by a callback", row(inside(CALLS[name])), INSIDE[name]) for name in CALLS),
    Row("four tasks stop", row(four_stops), [["None"] * 4, True]),
    Row("flush, and another task stops", row(flush_and_stop), [["None"] * 2, True]),
    Row("stop while four tasks send", row(stop_under_load), ["None", [CLOSED] * 4, True]),
]

if __name__ == "__main__":
    warnings.simplefilter("ignore")
    logging.disable(logging.CRITICAL)
    main(ROWS)
