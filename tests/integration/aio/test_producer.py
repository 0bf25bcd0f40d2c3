"""The asyncio Producer: its waits do not block the event loop."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from kprod.aio import Producer
from kprod.broker import ApiKey, EmbeddedBroker, Fault
from kprod.errors import (
    ConfigError,
    KprodError,
    KprodTimeoutError,
    ProducerClosedError,
    RecordTypeError,
)
from kprod.types import ProducerRecord
from kprod_ext.aio import MOST

BROKER = {"topics": {"t": 2}}

LONG = 30.0


async def until_known(producer: Producer, topic: str) -> None:
    """Wait for the topic's metadata regardless of ``max_block_ms``."""
    while True:
        with suppress(KprodTimeoutError):
            await producer.partitions_for(topic)
            return


async def iterations_while(wait: Awaitable[Any]) -> tuple[Any, int]:
    """The result or exception, and the loop iterations meanwhile."""
    iterations = 0

    async def count() -> None:
        nonlocal iterations
        while True:
            iterations += 1
            await asyncio.sleep(0)

    counting = asyncio.create_task(count())
    outcomes: Any = await asyncio.gather(wait, return_exceptions=True)
    counting.cancel()
    return outcomes[0], iterations


async def test_sent_records_are_stored_and_return_metadata(servers: str) -> None:
    async with Producer(bootstrap_servers=servers) as producer:
        future = await producer.send("t", b"v", key=b"k")
        stored = await future
        assert stored == await future
        assert (await producer.send_and_wait("t", b"v", partition=1)).partition == 1
        assert len(await producer.send_all("t", [b"v"] * 300)) == 300
        assert await producer.partitions_for("t") == {0, 1}
        assert (await producer.flush()).delivered == 302
        assert producer.metrics()["producer-metrics"]["record-send-total"] == 302
    with pytest.raises(ProducerClosedError):
        await producer.send("t", b"v")


async def test_send_all_sends_values_with_their_keys_in_order(servers: str) -> None:
    async with Producer(bootstrap_servers=servers) as producer:
        keys = [b"%d" % (number % 7) for number in range(3000)]
        stored = await producer.send_all("t", (b"v" * n for n in range(3000)), iter(keys))
        assert [metadata.serialized_value_size for metadata in stored] == list(range(3000))
        for partition in (0, 1):
            offsets = [metadata.offset for metadata in stored if metadata.partition == partition]
            assert offsets == sorted(offsets)
        with pytest.raises(ValueError, match="there are 1 keys, and more values"):
            await producer.send_all("t", [b"v", b"w"], [b"k"])
        with pytest.raises(RecordTypeError):
            await producer.send_all("t", [b"v", 5])
        assert await producer.send_all("t", []) == []


@pytest.mark.parametrize(
    "call",
    [
        lambda producer: producer.send("t", b"v"),
        lambda producer: producer.start(),
        lambda producer: producer.partitions_for("t"),
    ],
)
async def test_waiting_for_a_broker_does_not_block_the_loop(
    unreachable: str, call: Callable[[Producer], Awaitable[object]]
) -> None:
    producer = Producer(bootstrap_servers=unreachable, max_block_ms=200)
    outcome, iterations = await iterations_while(call(producer))
    assert isinstance(outcome, KprodTimeoutError)
    assert iterations > 100
    await producer.close()


async def test_waiting_for_memory_does_not_block_the_loop(servers: str) -> None:
    async with Producer(bootstrap_servers=servers, buffer_memory=60_000) as producer:
        outcome, iterations = await iterations_while(producer.send_all("t", [bytes(1000)] * 1000))
        assert len(outcome) == 1000
        assert iterations > 15


@pytest.mark.parametrize("many", [False, True])
async def test_no_send_overtakes_tasks_that_wait_for_memory(many: bool) -> None:
    """Not even if memory is free and those tasks have not run yet."""
    with EmbeddedBroker(topics={"t": 1}) as broker:
        async with Producer(
            bootstrap_servers=broker.bootstrap_servers, buffer_memory=32_768, linger_ms=0
        ) as producer:
            await producer.send_and_wait("t", b"first")
            broker.faults.add(Fault(api=ApiKey.PRODUCE, delay=0.3, times=2))
            early = [b"%d" % number + bytes(12_000) for number in range(5)]
            tasks = [asyncio.create_task(producer.send("t", value)) for value in early]
            await asyncio.sleep(0.1)
            time.sleep(1.0)  # the loop is blocked, and all memory is released
            late = b"late" + bytes(12_000)
            await (producer.send_all("t", [late]) if many else producer.send("t", late))
            await asyncio.gather(*tasks)
        stored = [(record.value or b"")[:4].rstrip(b"\0") for record in broker.records("t")]
    assert stored == [b"firs", b"0", b"1", b"2", b"3", b"4", b"late"]


class RecordingInterceptor:
    """An interceptor that counts records."""

    def __init__(self) -> None:
        self.seen = self.failed = 0

    def on_send(self, record: ProducerRecord) -> ProducerRecord:
        self.seen += 1
        return record

    def on_send_error(self, record: ProducerRecord, error: BaseException) -> None:
        self.failed += 1


async def test_interceptors_are_called_once_per_record_despite_retries(servers: str) -> None:
    recorder, errors = RecordingInterceptor(), list[BaseException]()
    only_errors = SimpleNamespace(on_send_error=lambda record, error: errors.append(error))
    options: Any = {"bootstrap_servers": servers, "buffer_memory": 60_000}
    for interceptor in (recorder, only_errors):
        async with Producer(**options, interceptors=[interceptor]) as producer:
            sending = (producer.send_and_wait("t", bytes(30_000)) for _ in range(10))
            await asyncio.gather(*sending)
    assert (recorder.seen, recorder.failed, errors) == (10, 0, [])


def renaming(topic: str) -> Any:
    """An interceptor that sends records to another topic."""
    return SimpleNamespace(on_send=lambda record: replace(record, topic=topic))


async def test_an_interceptor_may_change_the_topic() -> None:
    with EmbeddedBroker(topics={"t": 1, "other": 1}, auto_create_topics=False) as broker:
        options: Any = {"bootstrap_servers": broker.bootstrap_servers, "max_block_ms": 300}
        async with Producer(**options, interceptors=[renaming("other")]) as producer:
            assert (await producer.send_and_wait("no-such-topic", b"v")).topic == "other"
        async with Producer(**options, interceptors=[renaming("missing")]) as producer:
            await until_known(producer, "t")
            with pytest.raises(KprodError, match="missing"):
                await asyncio.wait_for(producer.send("t", b"v"), LONG)


async def test_cancelled_and_expired_sends_leave_nothing_queued(unreachable: str) -> None:
    producer = Producer(bootstrap_servers=unreachable, max_block_ms=300)
    first = asyncio.create_task(producer.send("t", b"v"))
    second = asyncio.create_task(producer.send("t", b"v"))
    await asyncio.sleep(0.01)
    first.cancel()
    with pytest.raises(asyncio.CancelledError):
        await first
    with pytest.raises(KprodTimeoutError):
        await second
    report = await producer.close()
    assert (report.delivered, report.failed, report.pending) == (0, 0, 0)


async def test_send_all_yields_to_other_tasks(servers: str) -> None:
    async with Producer(bootstrap_servers=servers) as producer:
        await producer.partitions_for("t")
        _, iterations = await iterations_while(producer.send_all("t", [b"v"] * 20_000))
        assert iterations >= 20_000 // MOST


async def test_an_exception_in_the_context_manager_closes_quickly(unreachable: str) -> None:
    began = time.monotonic()
    with EmbeddedBroker(topics={"t": 1}) as broker:
        producer = Producer(bootstrap_servers=broker.bootstrap_servers, close_timeout_ms_at_exit=50)
        with pytest.raises(LookupError):
            async with producer:
                raise LookupError
    with pytest.raises(KprodTimeoutError):
        async with Producer(bootstrap_servers=unreachable, **{"max.block.ms": 50}):
            pytest.fail("there is no broker")
    assert time.monotonic() - began < LONG
    with pytest.raises(ConfigError, match="max_block_ms"):
        Producer(bootstrap_servers=unreachable, max_block_ms="soon")


async def test_a_transaction_whose_begin_is_cancelled_has_not_begun(broker: EmbeddedBroker) -> None:
    """The thread that waits for the coordinator continues but must not begin it."""
    servers = broker.bootstrap_servers
    async with Producer(bootstrap_servers=servers, transactional_id="x") as producer:
        slow = broker.faults.add(Fault(api=ApiKey.INIT_PRODUCER_ID, delay=0.3))
        task = asyncio.create_task(producer.transaction().__aenter__())
        while not slow.hits:
            await asyncio.sleep(0.01)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        for thread in threading.enumerate():
            if thread.name.startswith("kprod-begin"):
                await asyncio.to_thread(thread.join, LONG)
        async with producer.transaction() as second:
            await producer.send("t", b"v")
    assert second.outcome == "committed"
