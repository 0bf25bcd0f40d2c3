"""The calls of an AIOProducer around its end: a table for confluent-kafka and for kprod.

A program: ``python -m tests.integration.lifecycle.confluent_aio_calls MODULE SERVERS`` prints what
becomes of each row with ``confluent_kafka.aio`` or ``kprod.confluent.aio``. The first is the judge.
"""

from __future__ import annotations

import asyncio
import itertools
import time
import warnings
from collections.abc import Awaitable, Callable
from typing import Any

import confluent_kafka

from tests.integration.lifecycle.confluent_calls import LONG, TRANSACTIONAL, group, silent
from tests.support.forked_rows import WAITS, Row, main, outcome
from tests.support.ports import free_port

Call = Callable[[Any], Awaitable[Any]]
numbers = itertools.count()


async def length(producer: Any) -> int:
    return len(producer)


CALLS: dict[str, Call] = {
    "produce": lambda p: p.produce("t", b"value"),
    "poll(0)": lambda p: p.poll(0),
    "poll(0.1)": lambda p: p.poll(0.1),
    "flush": lambda p: p.flush(),
    "flush(0)": lambda p: p.flush(0),
    "purge": lambda p: p.purge(),
    "list_topics": lambda p: p.list_topics("t"),
    "cluster_id": lambda p: p.cluster_id(),
    "set_sasl_credentials": lambda p: p.set_sasl_credentials("user", "password"),
    "len": length,
    "close": lambda p: p.close(),
    "async with": lambda p: p.__aexit__(None, None, None),
    "init_transactions": lambda p: p.init_transactions(LONG),
    "begin_transaction": lambda p: p.begin_transaction(),
    "send_offsets": lambda p: p.send_offsets_to_transaction(
        [confluent_kafka.TopicPartition("t", 0, 1)], group(), LONG
    ),
    "commit": lambda p: p.commit_transaction(LONG),
    "abort": lambda p: p.abort_transaction(LONG),
}


async def told(call: Call, producer: Any) -> str:
    try:
        found = await call(producer)
    except Exception as error:
        return outcome(raised, error)
    return "Future" if asyncio.isfuture(found) else outcome(lambda: found)


def raised(error: Exception) -> None:
    raise error


def row(
    work: Callable[[Any], Awaitable[Any]], *, transactional: bool = False, alone: bool = False
) -> Callable[[Any, str], Any]:
    """A program whose producer is in a transaction, or finds no broker."""

    def run(module: Any, servers: str) -> Any:
        options = {"bootstrap.servers": servers, "linger.ms": 5, "logger": silent}
        if alone:
            options |= {"bootstrap.servers": f"127.0.0.1:{free_port()}", "message.timeout.ms": 2000}
        if transactional:
            options["transactional.id"] = f"{module.__name__}-{time.time_ns()}-{next(numbers)}"

        async def main() -> Any:
            producer = module.AIOProducer(options, buffer_timeout=0.1)
            if transactional:
                await producer.init_transactions(LONG)
                await producer.begin_transaction()
            return await work(producer)

        return asyncio.run(main())

    return run


def after_close(call: Call) -> Callable[[Any], Awaitable[Any]]:
    async def run(producer: Any) -> str:
        await (await producer.produce("t", b"value"))
        await producer.close()
        return await told(call, producer)

    return run


def inside(call: Call) -> Callable[[Any], Awaitable[Any]]:
    """The call in a task that a callback of a record's future begins."""

    async def run(producer: Any) -> str:
        begun = asyncio.get_running_loop().create_future()
        future = await producer.produce("t", b"value")
        future.add_done_callback(
            lambda _: begun.set_result(asyncio.ensure_future(told(call, producer)))
        )
        await producer.flush()
        said: str = await (await begun)
        return said

    return run


def beside_close(name: str, *, first: bool) -> Callable[[Any], Awaitable[Any]]:
    """The call and ``close`` begin at once, one before the other, with a record on its way."""

    async def run(producer: Any) -> Any:
        future = await producer.produce("t", b"value")
        calls = [CALLS[name], CALLS["close"]]
        heard = await asyncio.gather(
            *(told(call, producer) for call in (calls if first else reversed(calls)))
        )
        return [*(heard if first else reversed(heard)), future.done()]

    return run


async def four_closes(producer: Any) -> Any:
    futures = [await producer.produce("t", b"value") for _ in range(100)]
    heard = await asyncio.gather(*(told(CALLS["close"], producer) for _ in range(4)))
    return [heard, all(future.done() and not future.exception() for future in futures)]


async def close_under_load(producer: Any) -> Any:
    """The tasks that produce are refused."""

    async def produce() -> str:
        while True:
            try:
                await producer.produce("t", b"value")
            except Exception as error:
                return type(error).__name__
            await asyncio.sleep(0)

    tasks = [asyncio.ensure_future(produce()) for _ in range(4)]
    await asyncio.sleep(0.3)
    closed = await told(CALLS["close"], producer)
    return [closed, await asyncio.gather(*tasks)]


CLOSED = "RuntimeError"
LOST = "a record that would never be sent is refused"
TWICE = "a second close finds that all is done"
COUNTED = "what was served since the last poll counts, whoever served it"
NEW = "calls that begin while the producer closes are refused, as those of Producer"
HEARD = "a call that waits is told that the producer was closed"
STATE = "KafkaException _STATE"
FOUND = {
    "produce": "Future",
    "poll(0)": "0",
    "poll(0.1)": "0",
    "flush": "0",
    "flush(0)": "0",
    "purge": "None",
    "list_topics": "ClusterMetadata",
    "cluster_id": "str",
    "set_sasl_credentials": "None",
    "len": "0",
    "close": "None",
    "async with": "None",
    "init_transactions": STATE,
    "begin_transaction": STATE,
    "send_offsets": "None",
    "commit": "None",
    "abort": "None",
}
AFTER: dict[str, tuple[Any, ...]] = {
    **dict.fromkeys(CALLS, (CLOSED,)),
    "produce": ("Future", CLOSED, LOST),
    "len": ("0",),
    "close": (CLOSED, "None", TWICE),
    "async with": (CLOSED, "None", TWICE),
}
INSIDE: dict[str, tuple[Any, ...]] = {
    **{name: (found,) for name, found in FOUND.items()},
    "poll(0)": ("0", "1", COUNTED),
    "poll(0.1)": ("0", "1", COUNTED),
}
STEPS = ("poll(0.1)", "flush", "flush(0)", "begin_transaction", "commit", "abort")
"""What these find beside a close depends on how long the original takes for each of their steps."""
BESIDE = {name: found for name, found in FOUND.items() if name not in STEPS} | {"len": "1"}
ALWAYS = {"len": "0", "close": "None", "async with": "None"}

ROWS = [
    *(Row(f"{name} after close", row(after_close(CALLS[name])), *AFTER[name]) for name in CALLS),
    *(
        Row(
            f"{name} begun by a callback",
            row(inside(CALLS[name]), transactional=name in TRANSACTIONAL),
            *INSIDE[name],
        )
        for name in CALLS
    ),
    *(
        Row(
            f"{name}, and another task closes",
            row(beside_close(name, first=True), transactional=name in TRANSACTIONAL),
            [found, "None", True],
        )
        for name, found in BESIDE.items()
    ),
    *(
        Row(
            f"{name} without a broker, and another task closes",
            row(beside_close(name, first=True), alone=True),
            WAITS,
            ["KafkaException _DESTROY", "None", True],
            HEARD,
        )
        for name in ("list_topics", "cluster_id")
    ),
    *(
        Row(
            f"{name} while another task closes",
            row(beside_close(name, first=False), transactional=name in TRANSACTIONAL),
            [ALWAYS.get(name, found), "None", True],
            [ALWAYS.get(name, CLOSED), "None", True],
            NEW,
        )
        for name, found in BESIDE.items()
    ),
    Row("four tasks close", row(four_closes), [["None"] * 4, True]),
    Row("close while four tasks produce", row(close_under_load), ["None", [CLOSED] * 4]),
]

if __name__ == "__main__":
    warnings.simplefilter("ignore")
    main(ROWS)
