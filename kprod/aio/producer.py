"""kprod's own producer for asyncio. Its calls never block the event loop."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from functools import partial
from typing import TYPE_CHECKING, Any, Self

from kprod.aio.loop_threads import with_tokens_of_loop
from kprod.aio.queueing import NativeProducer, Queueing, Record
from kprod.config.reading import concealed, option_name
from kprod.intake.serializers import without_waiting
from kprod.transactional.group_offsets import Offsets
from kprod.transactional.transaction_calls import Transaction
from kprod.types import DeliveryReport, Headers, RecordMetadata
from kprod_ext.aio import NOTHING, OutcomeNotifier, SentRecord
from kprod_ext.futures import FutureRecordMetadata

if TYPE_CHECKING:
    from uuid import UUID


class AsyncTransaction:
    """One transaction for ``async with``. The end of the block commits, any exception aborts.

    ``outcome`` is as in ``kprod.Transaction``. Cancelling the task in the block also aborts the
    transaction.
    """

    def __init__(self, queueing: Queueing, transaction: Transaction) -> None:
        self._queueing = queueing
        self._transaction = transaction

    @property
    def outcome(self) -> str | None:
        """``"committed"``, ``"aborted"`` or ``"unknown"``; None before the end of the block."""
        return self._transaction.outcome

    async def send_offsets(self, offsets: Offsets, group_metadata: Any) -> None:
        """See ``KafkaProducer.send_offsets_to_transaction``."""
        send = partial(self._transaction.send_offsets, offsets, group_metadata)
        await self._queueing.elsewhere(send, "offsets")

    async def __aenter__(self) -> Self:
        await self._queueing.elsewhere(self._transaction.prepare, "begin")
        # Here, not in the thread: the thread continues if this task is cancelled, and would leave
        # the transaction open.
        self._transaction.begin()
        return self

    async def __aexit__(self, *error: Any) -> None:
        end = partial(self._transaction.__exit__, *error)
        await self._queueing.elsewhere(end, "end")


class Producer:
    """Sends records to Kafka from asyncio tasks.

    It works with any event loop implementation, including uvloop. Use one producer in one event
    loop only. ``async with`` calls ``start`` at the beginning of the block and ``close`` at its
    end.

    Options are those of ``kprod.KafkaProducer``. The ``token`` of a ``sasl_oauth_token_provider``
    may be a coroutine function, which then runs in the event loop in which the producer was
    created. Methods that wait for metadata, memory, DNS or brokers are coroutines, so that other
    tasks keep running.

    If a task is cancelled in ``send``, its record is still sent if it was already queued, and
    otherwise not.
    """

    def __init__(self, **options: Any) -> None:
        options = concealed(options)
        options = with_tokens_of_loop(options, asyncio._get_running_loop())
        for name in options:
            if option_name(name) in ("key_serializer", "value_serializer"):
                options[name] = without_waiting(options[name])
        self._native = NativeProducer(**options)
        self._max_block = self._native.config.max_block_ms / 1000
        self._queueing = Queueing(
            self._native, self._max_block, partial(OutcomeNotifier, renews=True)
        )
        self._send_at_once = self._queueing.send_at_once

    async def start(self) -> None:
        """Wait at most ``max_block_ms`` until a broker responds. This call is optional.

        Raises KprodTimeoutError with the error of each broker that was tried.
        """
        connect = partial(self._native.connect, self._max_block)
        await self._queueing.elsewhere(connect, "connect")

    async def send(
        self,
        topic: str,
        value: Any = None,
        key: Any = None,
        headers: Headers | None = None,
        partition: int | None = None,
        timestamp_ms: int | None = None,
    ) -> SentRecord:
        """Queue one record and return its future; ``await`` the future for the metadata.

        Raises the errors of ``KafkaProducer.send``. BufferFullError (``buffer_memory`` is
        exhausted) and KprodTimeoutError (no metadata of the topic) are raised after
        ``max_block_ms``.
        """
        if not self._queueing.lines.hold(topic):
            future = self._send_at_once(topic, value, key, headers, partition, timestamp_ms)
            if future is not None:
                return future
        record = Record(topic, value, key, headers, partition, timestamp_ms)
        return self._queueing.sent(await self._queueing.put(record))

    async def send_and_wait(
        self,
        topic: str,
        value: Any = None,
        key: Any = None,
        headers: Headers | None = None,
        partition: int | None = None,
        timestamp_ms: int | None = None,
    ) -> RecordMetadata:
        """Queue one record and wait until it is stored. Raises the record's error."""
        given = topic, value, key, headers, partition, timestamp_ms
        future: FutureRecordMetadata | None = None
        if not self._queueing.lines.hold(topic):
            future = self._queueing.put_at_once(*given)
        if future is None:
            future = await self._queueing.put(Record(*given))
        return await future

    async def send_all(
        self, topic: str, values: Iterable[Any], keys: Iterable[Any] | None = None
    ) -> list[RecordMetadata]:
        """Queue a record for each value, in order, and wait until all are stored.

        ``keys`` has one key for each value. This is the fastest call for many records. Raises the
        error of the first record that failed, and the errors of ``send``.
        """
        queueing, queued = self._queueing, list[FutureRecordMetadata]()
        left, their_keys = iter(values), None if keys is None else iter(keys)
        while (last := await queueing.put_many(topic, left, their_keys, queued)) is not None:
            if last is NOTHING:
                await queueing.turns.wait()
            else:
                queued.append(await queueing.put(Record(topic, *last)))
        stored: list[RecordMetadata] = []
        while len(stored) < len(queued):
            waited_for = queued[len(stored)]
            await (asyncio.sleep(0) if waited_for.is_done else waited_for)
            queueing.take_outcomes(queued, stored)
        return stored

    # Transactions: see kprod.KafkaProducer for what each call does and raises. A timeout is in
    # seconds; None means max_block_ms. Cancelling a task only ends its wait: as after a timeout,
    # repeat the same call.

    async def init_transactions(self, timeout: float | None = None) -> None:
        """Get a producer id from the coordinator. Call it once, before the first transaction."""
        await self._elsewhere("init_transactions", self._seconds(timeout))

    async def begin_transaction(self) -> None:
        """Begin a transaction. This sends nothing and does not wait."""
        self._queueing.native.begin_transaction()

    async def send_offsets_to_transaction(
        self, offsets: Offsets, group_metadata: Any, timeout: float | None = None
    ) -> None:
        """Commit the offsets of a consumer group together with the transaction."""
        seconds = self._seconds(timeout)
        await self._elsewhere("send_offsets_to_transaction", offsets, group_metadata, seconds)

    async def commit_transaction(self, timeout: float | None = None) -> None:
        """Send all queued records and commit the transaction, including its offsets."""
        await self._elsewhere("commit_transaction", self._seconds(timeout))

    async def abort_transaction(self, timeout: float | None = None) -> None:
        """Abort the transaction. Readers of committed records never see its records."""
        await self._elsewhere("abort_transaction", self._seconds(timeout))

    def transaction(self, timeout: float | None = None) -> AsyncTransaction:
        """Return a transaction for ``async with``. It calls ``init_transactions`` if needed."""
        transaction = self._queueing.native.transaction(self._seconds(timeout))
        return AsyncTransaction(self._queueing, transaction)

    def _seconds(self, timeout: float | None) -> float:
        return self._max_block if timeout is None else timeout

    async def _elsewhere(self, call: str, *arguments: Any) -> None:
        made = partial(getattr(self._queueing.native, call), *arguments)
        await self._queueing.elsewhere(made, call)

    async def flush(self, timeout: float | None = None) -> DeliveryReport:
        """Wait until every record queued so far has a result. See ``KafkaProducer.flush``."""
        flush = partial(self._native.flush, timeout)
        return await self._queueing.elsewhere(flush, "flush")  # type: ignore[no-any-return]

    async def close(self, timeout: float | None = None) -> DeliveryReport:
        """Send all queued records and close. See ``KafkaProducer.close``."""
        close = partial(self._native.close, timeout)
        return await self._queueing.elsewhere(close, "close")  # type: ignore[no-any-return]

    async def partitions_for(self, topic: str) -> set[int]:
        """The topic's partition numbers."""
        return set(range(len(await self._queueing.topic(topic, self._max_block))))

    async def client_instance_id(self, timeout: float | None = None) -> UUID:
        """Return the id under which brokers store this producer's metrics (KIP-714).

        Waits at most ``timeout`` seconds; None means ``max_block_ms``. Raises KprodTimeoutError if
        no broker has assigned an id by then, and IllegalStateError with
        ``enable_metrics_push=False``.
        """
        ask = partial(self._native.client_instance_id, self._seconds(timeout))
        return await self._queueing.elsewhere(ask, "id")  # type: ignore[no-any-return]

    @property
    def __kprod_producer__(self) -> NativeProducer:
        """The underlying producer; for ``kprod.observability``."""
        return self._native

    def metrics(self) -> dict[str, dict[str, float]]:
        """Metric values by group and by Kafka's metric names."""
        return self._native.metrics()

    async def __aenter__(self) -> Self:
        try:
            await self.start()
        except BaseException:
            await self.close(0)
            raise
        return self

    async def __aexit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        at_exit = self._native.config.close_timeout_ms_at_exit / 1000
        await self.close(None if error is None else at_exit)
