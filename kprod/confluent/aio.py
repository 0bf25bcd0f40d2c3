"""AIOProducer, compatible with ``confluent_kafka.aio``. Its calls never block the loop."""

from __future__ import annotations

import asyncio
import inspect
import weakref
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Executor, ThreadPoolExecutor
from contextlib import contextmanager, suppress
from functools import partial
from typing import Any, Self, TypeAlias

from kprod.clock import SystemClock
from kprod.config.reading import concealed
from kprod.confluent.cluster_metadata import ClusterMetadata
from kprod.confluent.errors import KafkaException
from kprod.confluent.native import NativeProducer, seconds
from kprod.confluent.producer import PATIENCE, Producer
from kprod_ext.confluent import CLOSED, Message

__all__ = ["AIOProducer"]

monotonic = SystemClock.monotonic

AT_ONCE = 500
"""Records to queue or complete in one iteration of the loop, so that other tasks can run."""

_CALLBACKS = ("error_cb", "throttle_cb", "stats_cb")
_Outcome: TypeAlias = tuple[asyncio.Future[Message], Any, Message]


class _Notifying(Producer):
    """A Producer that calls a function when there are reports to serve."""

    def on_ready(self, call: Callable[[], object]) -> None:
        """Register ``call``, which any thread may then call."""
        self._reports.on_ready = call

    @property
    def statistics_interval(self) -> float:
        """Seconds between statistics; 0.0 for none."""
        return self._settings.statistics_interval if self._settings.stats_cb else 0.0


class AIOProducer:
    """Drop-in replacement for ``confluent_kafka.aio.AIOProducer``, for one event loop.

    A producer belongs to the event loop in which it is created. ``produce`` returns a future of the
    record's Message. Calling ``poll`` is optional: delivery reports are handled as they arrive.
    ``error_cb``, ``stats_cb`` and ``throttle_cb`` run in the event loop and may be coroutine
    functions. Calls that wait for a broker run in ``executor``, or in up to ``max_workers``
    threads. ``batch_size`` and ``buffer_timeout`` are accepted and ignored: records are queued
    immediately, and ``linger.ms`` controls batching.
    """

    def __init__(
        self,
        producer_conf: Mapping[str, Any],
        max_workers: int = 4,
        executor: Executor | None = None,
        batch_size: int = 1000,
        buffer_timeout: float = 1.0,
    ) -> None:
        producer_conf = conf = dict(concealed(producer_conf))
        self._loop = asyncio.get_running_loop()
        self._own = ThreadPoolExecutor(max_workers, "kprod-aio") if executor is None else None
        self.executor = executor or self._own
        self._outcomes: deque[_Outcome] = deque()
        self._served = asyncio.Event()
        self._line = asyncio.Lock()  # held by the task that waits for memory; it is fair
        self._ended = asyncio.Event()  # ``close`` has finished
        self._tasks: set[asyncio.Future[Any]] = set()
        self._transacting: set[asyncio.Future[None]] = set()  # done when a call has ended
        self._woken = False
        self._closed = False  # the application's calls are refused
        self._polls = True  # until the underlying producer is closed
        self._unpolled = self._unyielded = 0
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
        """Serve available reports and complete futures, in the loop's thread."""
        self._woken = False
        if self._polls:
            self._producer.poll(0)
        for _ in range(min(AT_ONCE, len(self._outcomes))):
            future, error, message = self._outcomes.popleft()
            self._unpolled += 1
            if future.done():  # cancelled: the record is sent all the same
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
        """Wait at most ``longest`` seconds until reports have been served."""
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
        """Queue a record, waiting while the queue is full. Returns a future of its Message.

        Records are queued in the order of the calls. The future fails with KafkaException if the
        record is rejected or not delivered. Raises TypeError for an argument of a wrong type.
        Raises RuntimeError if the producer is already closed, or is closed while the call waits.
        """
        future: asyncio.Future[Message] = self._loop.create_future()
        report = partial(_reported, self._outcomes, future)
        async with self._line:
            while True:
                try:
                    given = topic, value, key, partition, report, None, timestamp, headers
                    self._running.produce(*given)
                except BufferError:
                    await self._next(PATIENCE)
                except KafkaException as error:
                    future.set_exception(error)
                    return future
                else:
                    break
        self._unyielded += 1
        if self._unyielded >= AT_ONCE:
            self._unyielded = 0
            await asyncio.sleep(0)  # let others run; after queueing, so that none overtakes it
        return future

    @property
    def _running(self) -> Producer:
        self._check_loop()
        if self._closed:
            raise RuntimeError(CLOSED)
        return self._producer

    def _check_loop(self) -> None:
        """Raise RuntimeError in another event loop, and in a forked child.

        Futures of one loop cannot be awaited in another.
        """
        if asyncio._get_running_loop() is not self._loop:
            raise RuntimeError(
                "an AIOProducer belongs to the event loop in which it was made: make another one in"
                " this loop, and in a forked child"
            )

    @property
    def __kprod_producer__(self) -> NativeProducer | None:
        """The underlying producer, for ``kprod.observability``. None after ``close``."""
        return self._producer.__kprod_producer__

    def __len__(self) -> int:
        return 0 if self._closed else self._left()

    def _left(self) -> int:
        return len(self._producer) + len(self._outcomes)

    def __bool__(self) -> bool:
        return True

    async def poll(self, timeout: float | None = 0) -> int:
        """Return the number of futures completed since the last call.

        If no future has completed, but records are in flight, waits at most ``timeout`` seconds for
        the next one. None and -1 mean no limit. Calls are optional, because futures also complete
        without them.
        """
        _ = self._running
        if timeout != 0 and not self._unpolled and len(self):
            await self._next(seconds(timeout))
        polled, self._unpolled = self._unpolled, 0
        return polled

    async def flush(self, timeout: float | None = -1) -> int:
        """Wait at most ``timeout`` seconds until all futures are done; return how many are not."""
        return await self._flush(self._running, monotonic() + seconds(timeout))

    async def _flush(self, producer: Producer, deadline: float) -> int:
        while True:
            if self._polls:
                producer.flush(0)  # sends lingering batches, and serves reports
            if not self._outcomes:
                left = deadline - monotonic()
                if not self._left() or left <= 0:
                    return self._left()
                await self._next(min(left, PATIENCE))
            else:
                self._serve()
                await asyncio.sleep(0)

    async def purge(
        self, in_queue: bool = True, in_flight: bool = True, blocking: bool = True
    ) -> None:
        """Discard records: their futures fail with _PURGE_QUEUE or _PURGE_INFLIGHT."""
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

    @contextmanager
    def _transaction(self) -> Iterator[Producer]:
        """Run a transactional call, for which ``close`` waits."""
        producer, ended = self._running, self._loop.create_future()
        self._transacting.add(ended)
        try:
            yield producer
        finally:
            self._transacting.remove(ended)
            ended.set_result(None)

    async def begin_transaction(self) -> None:
        """Begin a transaction, after all futures of earlier records are done."""
        with self._transaction() as producer:
            await self._flush(producer, monotonic() + seconds(None))
            producer.begin_transaction()

    async def send_offsets_to_transaction(
        self, positions: list[Any], group_metadata: Any, timeout: float | None = -1
    ) -> None:
        """See ``Producer.send_offsets_to_transaction``."""
        with self._transaction() as producer:
            call = producer.send_offsets_to_transaction
            await self._wait_for(call, positions, group_metadata, timeout)

    async def commit_transaction(self, timeout: float | None = -1) -> None:
        """Send all produced records and commit."""
        with self._transaction() as producer:
            await self._flush(producer, monotonic() + seconds(None))
            await self._end_transaction(producer.commit_transaction, timeout)

    async def abort_transaction(self, timeout: float | None = -1) -> None:
        """Abort the transaction. Futures of unsent records fail with _PURGE_QUEUE."""
        with self._transaction() as producer:
            await self._end_transaction(producer.abort_transaction, timeout)

    async def _end_transaction(
        self, call: Callable[[float | None], None], timeout: float | None
    ) -> None:
        """Run ``call``, which serves reports in another thread, and then complete futures here."""
        try:
            await self._wait_for(call, timeout)
        finally:
            self._serve()

    # The end --------------------------------------------------------------------------------------

    async def close(self) -> None:
        """Reject new calls with RuntimeError, flush, and close.

        Waits for transactional calls that are running. Other running calls that wait for a broker
        raise KafkaException with _DESTROY. A second ``close`` waits for the first one. If ``close``
        is cancelled, the producer closes immediately, and the futures of unsent records fail.
        """
        self._check_loop()
        if self._closed:
            await self._ended.wait()
            return
        self._closed = True
        try:
            if self._transacting:
                await asyncio.wait(self._transacting)
            await self._flush(self._producer, monotonic() + seconds(None))
        finally:
            self._polls = False
            # Not in ``executor``: calls that wait for a broker may occupy all of its threads.
            await self._loop.run_in_executor(None, self._producer.close, 0)
            self._serve()
            if self._own is not None:
                self._own.shutdown(wait=False)
            self._ended.set()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()


def _reported(
    outcomes: deque[_Outcome], future: asyncio.Future[Message], error: Any, message: Message
) -> None:
    """Keep an outcome for the loop. The thread that serves reports calls this."""
    outcomes.append((future, error, message))


def _wake(producer: weakref.ref[AIOProducer], loop: asyncio.AbstractEventLoop) -> None:
    """Schedule serving in the loop. Any thread may call this."""
    found = producer()
    if found is not None and not found._woken:
        found._woken = True
        with suppress(RuntimeError):  # the loop is closed: no task is waiting
            loop.call_soon_threadsafe(_serve, producer)


def _serve(producer: weakref.ref[AIOProducer]) -> None:
    found = producer()
    if found is not None:
        found._serve()


def _tick(
    producer: weakref.ref[AIOProducer], loop: asyncio.AbstractEventLoop, interval: float
) -> None:
    """Serve ``stats_cb`` regularly, even if no records are sent."""
    found = producer()
    if interval and found is not None and found._polls:
        found._serve()
        loop.call_later(interval, _tick, producer, loop, interval)
