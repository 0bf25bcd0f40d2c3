"""AIOProducer in the shape of ``confluent_kafka.aio``: what it waits for, it awaits"""

from __future__ import annotations

import asyncio
import inspect
import weakref
from collections import deque
from collections.abc import Callable, Mapping
from concurrent.futures import Executor, ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from typing import Any, Self, TypeAlias

from kprod.clock import SystemClock
from kprod.confluent.cluster_metadata import ClusterMetadata
from kprod.confluent.errors import KafkaException
from kprod.confluent.native import seconds
from kprod.confluent.producer import PATIENCE, Producer
from kprod_ext.confluent import CLOSED, Message

__all__ = ["AIOProducer"]

monotonic = SystemClock.monotonic

AT_ONCE = 500
"""Records that are queued, or get their outcome, in one turn of the loop: others run, too."""

_CALLBACKS = ("error_cb", "throttle_cb", "stats_cb")
_Outcome: TypeAlias = tuple[asyncio.Future[Message], Any, Message]


class _Notifying(Producer):
    """Calls back when reports wait to be served."""

    def on_ready(self, call: Callable[[], object]) -> None:
        """``call`` may come from any thread."""
        self._reports.on_ready = call

    @property
    def statistics_interval(self) -> float:
        """Seconds; 0.0 for none."""
        return self._settings.statistics_interval if self._settings.stats_cb else 0.0


class AIOProducer:
    """``confluent_kafka.aio.AIOProducer``: for the loop that runs when it is made, and its thread.

    ``produce`` returns a future of the record's Message. ``poll`` need not be called: the loop
    serves reports as they come, and no thread waits for them. ``error_cb``, ``stats_cb`` and
    ``throttle_cb`` run in the loop and may be coroutine functions. Calls that ask a broker wait in
    ``executor``, or in up to ``max_workers`` threads. ``batch_size`` and ``buffer_timeout`` are for
    programs that set them: a record is handed over at once, and ``linger.ms`` batches it.
    """

    def __init__(
        self,
        producer_conf: Mapping[str, Any],
        max_workers: int = 4,
        executor: Executor | None = None,
        batch_size: int = 1000,
        buffer_timeout: float = 1.0,
    ) -> None:
        self._loop = asyncio.get_running_loop()
        self._own = ThreadPoolExecutor(max_workers, "kprod-aio") if executor is None else None
        self.executor = executor or self._own
        self._outcomes: deque[_Outcome] = deque()
        self._served = asyncio.Event()
        self._tasks: set[asyncio.Future[Any]] = set()
        self._woken = self._closed = False
        self._unpolled = self._unyielded = 0
        conf = dict(producer_conf)
        for name in _CALLBACKS:
            if callable(conf.get(name)):
                conf[name] = partial(self._call_back, conf[name])
        self._producer = _Notifying(conf)
        me = weakref.ref(self)
        self._producer.on_ready(partial(_wake, me, self._loop))
        _wake(me, self._loop)  # for reports that came before
        _tick(me, self._loop, self._producer.statistics_interval)

    # Outcomes -------------------------------------------------------------------------------------

    def _serve(self) -> None:
        """Take the reports that are there, and give futures their outcome. The loop's thread."""
        self._woken = False
        if not self._closed:
            self._producer.poll(0)
        for _ in range(min(AT_ONCE, len(self._outcomes))):
            future, error, message = self._outcomes.popleft()
            self._unpolled += 1
            if future.done():  # cancelled: the record is on its way all the same
                continue
            if error is None:
                future.set_result(message)
            else:
                future.set_exception(KafkaException(error))
        if self._outcomes:
            self._loop.call_soon(self._serve)
        self._served.set()

    def _call_back(self, callback: Callable[[Any], Any], event: Any) -> None:
        if asyncio._get_running_loop() is not self._loop:  # ``close`` serves in a thread
            self._loop.call_soon_threadsafe(self._call_back, callback, event)
            return
        try:
            answer = callback(event)
        except Exception as error:
            what = f"{callback!r} of an AIOProducer failed"
            self._loop.call_exception_handler({"message": what, "exception": error})
            return
        if inspect.isawaitable(answer):
            task = asyncio.ensure_future(answer, loop=self._loop)
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def _next(self, longest: float) -> None:
        """Return when something was served, or after ``longest`` seconds."""
        self._served.clear()
        with suppress(TimeoutError):
            await asyncio.wait_for(self._served.wait(), longest)

    # Records --------------------------------------------------------------------------------------

    async def produce(
        self,
        topic: str,
        value: str | bytes | None = None,
        key: str | bytes | None = None,
        partition: int = -1,
        timestamp: int = 0,
        headers: Any = None,
    ) -> asyncio.Future[Message]:
        """Queue a record, waiting while the queue is full. The future has its Message.

        It fails with KafkaException where the record is refused or not delivered. Raises TypeError,
        and RuntimeError after ``close``.
        """
        future: asyncio.Future[Message] = self._loop.create_future()
        report = partial(_reported, self._outcomes, future)
        self._unyielded += 1
        if self._unyielded >= AT_ONCE:
            self._unyielded = 0
            await asyncio.sleep(0)
        while True:
            try:
                self._running.produce(topic, value, key, partition, report, timestamp, headers)
            except BufferError:
                await self._next(PATIENCE)
            except KafkaException as error:
                future.set_exception(error)
                return future
            else:
                return future

    @property
    def _running(self) -> Producer:
        if self._closed:
            raise RuntimeError(CLOSED)
        return self._producer

    def __len__(self) -> int:
        return 0 if self._closed else len(self._producer) + len(self._outcomes)

    def __bool__(self) -> bool:
        return True

    async def poll(self, timeout: float | None = 0) -> int:
        """How many futures got their outcome since the last call; None and -1 are for no limit.

        With none, and records on their way, waits at most ``timeout`` seconds for the next. Not
        needed: futures get their outcomes by themselves.
        """
        if timeout != 0 and not self._unpolled and len(self):
            await self._next(seconds(timeout))
        polled, self._unpolled = self._unpolled, 0
        return polled

    async def flush(self, timeout: float | None = -1) -> int:
        """Wait until every future is done, at most ``timeout`` seconds; how many are left."""
        deadline = monotonic() + seconds(timeout)
        while True:
            self._running.flush(0)  # lets no batch linger, and serves
            if not self._outcomes:
                left = deadline - monotonic()
                if not len(self) or left <= 0:
                    return len(self)
                await self._next(min(left, PATIENCE))
            else:
                self._serve()
                await asyncio.sleep(0)

    async def purge(
        self, in_queue: bool = True, in_flight: bool = True, blocking: bool = True
    ) -> None:
        """Give up records: their futures fail with _PURGE_QUEUE or _PURGE_INFLIGHT."""
        await self._wait_for(self._running.purge, in_queue, in_flight, blocking)

    # Calls that ask a broker ----------------------------------------------------------------------

    async def _wait_for(self, call: Callable[..., Any], *arguments: Any) -> Any:
        return await self._loop.run_in_executor(self.executor, partial(call, *arguments))

    async def list_topics(self, topic: str | None = None, timeout: float = -1) -> ClusterMetadata:
        """See ``Producer.list_topics``."""
        found: ClusterMetadata = await self._wait_for(self._running.list_topics, topic, timeout)
        return found

    async def cluster_id(self, timeout: float = -1) -> str:
        """See ``Producer.cluster_id``."""
        found: str = await self._wait_for(self._running.cluster_id, timeout)
        return found

    async def set_sasl_credentials(self, username: str, password: str) -> None:
        """See ``Producer.set_sasl_credentials``."""
        self._running.set_sasl_credentials(username, password)

    async def init_transactions(self, timeout: float | None = -1) -> None:
        """See ``Producer.init_transactions``."""
        await self._wait_for(self._running.init_transactions, timeout)

    async def begin_transaction(self) -> None:
        """Begin a transaction, when all futures of the last one are done."""
        await self.flush()
        self._running.begin_transaction()

    async def send_offsets_to_transaction(
        self, positions: list[Any], group_metadata: Any, timeout: float | None = -1
    ) -> None:
        """See ``Producer.send_offsets_to_transaction``."""
        call = self._running.send_offsets_to_transaction
        await self._wait_for(call, positions, group_metadata, timeout)

    async def commit_transaction(self, timeout: float | None = -1) -> None:
        """Send what was produced, and commit."""
        await self.flush()
        await self._wait_for(self._running.commit_transaction, timeout)

    async def abort_transaction(self, timeout: float | None = -1) -> None:
        """Give up the transaction; futures of what was not sent fail with _PURGE_QUEUE."""
        await self._wait_for(self._running.abort_transaction, timeout)

    # The end --------------------------------------------------------------------------------------

    async def close(self) -> None:
        """Flush, and end everything. Every other call raises RuntimeError then."""
        if self._closed:
            return
        try:
            await self.flush()
        finally:
            self._closed = True
            await self._wait_for(self._producer.close, 0)
            self._serve()
            if self._own is not None:
                self._own.shutdown(wait=False)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()


def _reported(
    outcomes: deque[_Outcome], future: asyncio.Future[Message], error: Any, message: Message
) -> None:
    """In the thread that serves: the loop's, or that in which ``close`` waits."""
    outcomes.append((future, error, message))


def _wake(producer: weakref.ref[AIOProducer], loop: asyncio.AbstractEventLoop) -> None:
    """Let the loop serve, from any thread."""
    found = producer()
    if found is not None and not found._woken:
        found._woken = True
        with suppress(RuntimeError):  # the loop is closed: no task waits any more
            loop.call_soon_threadsafe(_serve, producer)


def _serve(producer: weakref.ref[AIOProducer]) -> None:
    found = producer()
    if found is not None:
        found._serve()


def _tick(
    producer: weakref.ref[AIOProducer], loop: asyncio.AbstractEventLoop, interval: float
) -> None:
    """``stats_cb`` is due now and then, whether records are sent or not."""
    found = producer()
    if interval and found is not None and not found._closed:
        found._serve()
        loop.call_later(interval, _tick, producer, loop, interval)
