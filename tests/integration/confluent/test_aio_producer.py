"""AIOProducer as a drop-in replacement for confluent_kafka.aio.AIOProducer."""

from __future__ import annotations

import asyncio
import gc
import inspect
import json
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import confluent_kafka.aio
import pytest

from kprod.broker import ApiKey, EmbeddedBroker, Fault
from kprod.broker.network.listener import Listener
from kprod.confluent import AIOProducer, KafkaError, KafkaException, TopicPartition
from tests.integration.aio.test_producer import RecordingInterceptor
from tests.integration.confluent.test_producer import LONG
from tests.support.ports import free_port


async def test_the_future_of_a_record_returns_its_message(servers: str) -> None:
    async with AIOProducer({"bootstrap.servers": servers}) as producer:
        await producer.set_sasl_credentials("user", "password")
        topics = await producer.list_topics("t", LONG)
        assert topics.cluster_id == await producer.cluster_id(LONG)
        assert len(topics.topics["t"].partitions) == 3
        future = await producer.produce("t", "value", "key", partition=1, headers={"h": "x"})
        assert isinstance(future, asyncio.Future)
        assert len(producer) == 1
        message = await future
        assert (message.topic(), message.partition()) == ("t", 1)
        assert (message.key(), message.value()) == (b"key", b"value")
        assert message.headers() == [("h", b"x")]
        assert message.offset() is not None
        assert len(producer) == 0


async def test_flush_returns_after_all_futures_are_done(servers: str) -> None:
    async with AIOProducer({"bootstrap.servers": servers}) as producer:
        futures = [await producer.produce("t", b"%d" % n, partition=0) for n in range(5_000)]
        assert await producer.flush() == 0
        offsets = [future.result().offset() or 0 for future in futures]
        assert offsets == list(range(offsets[0], offsets[0] + 5_000))
        assert await producer.poll() == 5_000
        assert await producer.poll() == 0


@pytest.mark.parametrize("queue_limit", [100_000, 100])
async def test_records_of_many_tasks_keep_the_order_of_their_calls(queue_limit: int) -> None:
    """Later tasks queue behind those that wait for space in the queue."""
    tasks: list[asyncio.Task[asyncio.Future[Any]]] = []
    with EmbeddedBroker(topics={"ordered": 1}) as broker:
        limits = {"queue.buffering.max.messages": queue_limit}
        async with AIOProducer(
            {"bootstrap.servers": broker.bootstrap_servers, **limits}
        ) as producer:
            for count in [700, *[7] * 100]:
                numbers = range(len(tasks), len(tasks) + count)
                calls = [producer.produce("ordered", b"%d" % number) for number in numbers]
                tasks += map(asyncio.create_task, calls)
                await asyncio.sleep(0)
            await asyncio.gather(*await asyncio.gather(*tasks))
        assert [int(record.value or b"") for record in broker.records("ordered")] == [*range(1400)]


async def test_interceptors_are_called_once_for_a_record_that_waits_for_memory() -> None:
    recorder, slow = RecordingInterceptor(), Fault(api=ApiKey.PRODUCE, delay=0.2, times=3)
    values = [b"%04d" % number + bytes(size) for number in range(100) for size in (1000, 20_000)]
    with EmbeddedBroker(topics={"t": 1}) as broker, broker.faults.active(slow):
        small = {
            "batch.size": 16_384,
            "queue.buffering.max.kbytes": 64,
            "interceptors": [recorder],
        }
        conf = {"bootstrap.servers": broker.bootstrap_servers, **small}
        async with AIOProducer(conf) as producer:
            await producer.list_topics("t", LONG)
            await asyncio.gather(*[await producer.produce("t", value) for value in values])
            with pytest.raises(KafkaException, match="MSG_SIZE_TOO_LARGE"):
                await (await producer.produce("t", bytes(100_000)))
        assert [record.value for record in broker.records("t")] == values
    assert (recorder.seen, recorder.failed) == (len(values) + 1, 1)


async def test_close_refuses_new_records_and_concurrent_closes_wait(servers: str) -> None:
    producer = AIOProducer({"bootstrap.servers": servers, "queue.buffering.max.messages": 1})
    future = await producer.produce("t", b"v")
    waiting = asyncio.create_task(producer.produce("t", b"v"))
    await asyncio.sleep(0)
    closes = [asyncio.create_task(producer.close()) for _ in range(3)]
    await asyncio.sleep(0)
    with pytest.raises(RuntimeError, match="Producer has been closed"):
        await producer.produce("t", b"v")
    with pytest.raises(RuntimeError, match="Producer has been closed"):
        await waiting
    await asyncio.wait(closes, return_when=asyncio.FIRST_COMPLETED)
    assert future.done()
    await asyncio.gather(*closes)


async def close_with_timeout(producer: AIOProducer) -> None:
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(producer.close(), 0.05)


async def expire(producer: AIOProducer) -> None:
    assert await producer.flush(0) == 1


@pytest.mark.parametrize(
    ("give_up", "options", "code"),
    [
        (close_with_timeout, {}, KafkaError._PURGE_QUEUE),
        (expire, {"message.timeout.ms": 50}, KafkaError._MSG_TIMED_OUT),
        (AIOProducer.purge, {}, KafkaError._PURGE_QUEUE),
    ],
)
async def test_the_future_of_an_undelivered_record_raises(
    unreachable: str, give_up: Callable[[AIOProducer], Any], options: dict[str, Any], code: int
) -> None:
    async with AIOProducer({"bootstrap.servers": unreachable, **options}) as producer:
        future = await producer.produce("t", b"v")
        await give_up(producer)
        with pytest.raises(KafkaException) as caught:
            await future
        assert caught.value.args[0] == code


async def test_a_refused_record_fails_its_future_and_invalid_arguments_raise(servers: str) -> None:
    async with AIOProducer({"bootstrap.servers": servers}) as producer:
        with pytest.raises(KafkaException) as caught:
            await (await producer.produce("t", b"v" * 2_000_000))
        assert caught.value.args[0] == KafkaError.MSG_SIZE_TOO_LARGE
        with pytest.raises(TypeError):
            await producer.produce("t", 1)  # type: ignore[arg-type]
        assert len(producer) == 0


async def test_cancelling_a_future_does_not_cancel_its_record(servers: str) -> None:
    async with AIOProducer({"bootstrap.servers": servers}) as producer:
        cancelled = await producer.produce("t", b"first", partition=2)
        kept = await producer.produce("t", b"second", partition=2)
        cancelled.cancel()
        assert (await kept).value() == b"second"
        assert await producer.flush() == 0


async def test_callbacks_run_in_the_loop_and_may_be_coroutines(unreachable: str) -> None:
    calls: list[tuple[Any, threading.Thread]] = []
    errors: list[str] = []

    async def stats_cb(text: str) -> None:
        await asyncio.sleep(0)
        calls.append((json.loads(text)["type"], threading.current_thread()))

    def error_cb(error: KafkaError) -> None:
        calls.append((error.code(), threading.current_thread()))
        raise ValueError("for the exception handler")

    loop = asyncio.get_running_loop()
    loop.set_exception_handler(lambda loop, context: errors.append(str(context)))
    callbacks = {"error_cb": error_cb, "stats_cb": stats_cb, "statistics.interval.ms": 10}
    async with AIOProducer({"bootstrap.servers": unreachable, **callbacks}):
        expected = {"producer", KafkaError._ALL_BROKERS_DOWN}
        while not expected <= {event for event, _ in calls}:
            await asyncio.sleep(0.01)
    assert {thread for _, thread in calls} == {threading.current_thread()}
    assert errors
    assert all("error_cb" in context for context in errors)


async def test_transactions(servers: str) -> None:
    conf = {"bootstrap.servers": servers, "transactional.id": "mine"}
    async with AIOProducer(conf) as producer:
        await producer.init_transactions()
        for end in (producer.commit_transaction, producer.abort_transaction):
            await producer.begin_transaction()
            await producer.produce("t", b"v")
            await producer.send_offsets_to_transaction([TopicPartition("t", 0, 1)], "g")
            await end()
        await producer.begin_transaction()
        future = await producer.produce("t", b"v")
        await producer.commit_transaction()
        assert (await future).value() == b"v"


@pytest.mark.parametrize("end", ["commit_transaction", "abort_transaction"])
async def test_close_waits_for_a_commit_or_abort(end: str) -> None:
    with EmbeddedBroker(topics={"t": 1}) as broker:
        conf = {"bootstrap.servers": broker.bootstrap_servers, "transactional.id": "mine"}
        producer = AIOProducer(conf)
        await producer.init_transactions()
        await producer.begin_transaction()
        await producer.produce("t", b"v")
        await asyncio.gather(getattr(producer, end)(), producer.close())
        expected = [b"v"] if end == "commit_transaction" else []
        assert [record.value for record in broker.records("t", committed=True)] == expected


async def test_close_does_not_wait_for_a_call_that_waits_for_a_broker(unreachable: str) -> None:
    producer = AIOProducer({"bootstrap.servers": unreachable}, max_workers=1)
    listing = asyncio.create_task(producer.list_topics())
    await asyncio.sleep(0.1)
    await producer.close()
    with pytest.raises(KafkaException, match="_DESTROY"):
        await listing


async def test_a_call_that_waits_for_a_broker_does_not_block_others() -> None:
    port = free_port()
    async with AIOProducer({"bootstrap.servers": f"127.0.0.1:{port}"}) as producer:
        listing = asyncio.create_task(producer.list_topics(timeout=LONG))
        with pytest.raises(KafkaException):
            await producer.list_topics(timeout=0.01)
        assert not listing.done()
        with EmbeddedBroker(listeners=[Listener(port=port)], topics={"t": 1}):
            assert "t" in (await listing).topics


async def test_every_call_after_close_raises(servers: str) -> None:
    with ThreadPoolExecutor(1) as executor:
        producer = AIOProducer({"bootstrap.servers": servers}, executor=executor)
        future = await producer.produce("t", b"v")
        await producer.close()
        await producer.close()
        assert future.result().error() is None
        assert len(producer) == 0
        calls = (producer.produce("t"), producer.poll(), producer.flush(), producer.purge())
        for call in (*calls, producer.list_topics()):
            with pytest.raises(RuntimeError, match="Producer has been closed"):
                await call
        assert executor.submit(int).result() == 0  # it belongs to the application


async def test_a_dropped_producer_warns_and_ends_its_threads(unreachable: str) -> None:
    conf = {"bootstrap.servers": unreachable, "client.id": "dropped"}
    producer = AIOProducer(conf)
    assert await producer.flush() == 0
    del producer
    with pytest.warns(ResourceWarning, match="client_id=dropped> was not closed"):
        gc.collect()
    while any(thread.name.endswith("-dropped") for thread in threading.enumerate()):
        await asyncio.sleep(0.01)


def test_signatures_equal_those_of_confluent_kafka() -> None:
    original = confluent_kafka.aio.AIOProducer
    parameters = inspect.signature(AIOProducer).parameters
    assert list(parameters) == list(inspect.signature(original).parameters)
    for name, call in vars(original).items():
        if not name.startswith("_") and inspect.iscoroutinefunction(call):
            assert inspect.iscoroutinefunction(getattr(AIOProducer, name)), name


async def test_callbacks_run_in_the_loop_during_close(servers: str) -> None:
    threads: set[int] = set()
    conf = {
        "bootstrap.servers": servers,
        "statistics.interval.ms": 1,
        "stats_cb": lambda _: threads.add(threading.get_ident()),
    }
    for _ in range(20):  # until statistics are due in the thread that closes
        async with AIOProducer(conf) as producer:
            await (await producer.produce("t", b"v"))
    await asyncio.sleep(0)
    assert threads == {threading.get_ident()}
