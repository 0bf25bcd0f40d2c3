"""Queues records of asyncio tasks. Every wait is awaited, so the loop is never blocked."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from functools import partial
from typing import Any, NamedTuple

from kprod.aio.lookups import TopicLookups
from kprod.aio.loop_threads import in_thread
from kprod.aio.memory_waiters import MemoryWaiters
from kprod.cluster.metadata_errors import MOST_KEPT
from kprod.cluster.snapshot import TopicInfo
from kprod.errors import (
    BufferFullError,
    IllegalStateError,
    KprodError,
    KprodTimeoutError,
)
from kprod.intake.arguments import check_topic
from kprod.intake.attempts import Attempts
from kprod.intake.serializers import WouldWait
from kprod.producer import KafkaProducer
from kprod.quantities import in_seconds
from kprod_ext.aio import OutcomeNotifier, Sending
from kprod_ext.futures import FutureRecordMetadata


class Record(NamedTuple):
    """The arguments of ``send``."""

    topic: str
    value: Any = None
    key: Any = None
    headers: Any = None
    partition: int | None = None
    timestamp_ms: int | None = None


class QueuedBatch(NamedTuple):
    """Records of a batch that are already queued. The task ``rest`` queues the other records."""

    queued: list[FutureRecordMetadata]
    rest: asyncio.Task[None] | None


class NativeProducer(KafkaProducer):
    """kprod's producer for an event loop: it does not wait, whatever ``max_block_ms`` is."""

    def _start(self) -> None:
        self._max_block = 0.0
        super()._start()

    def connect_at_once(self, timeout: float) -> None:
        """As ``connect``, but raise as soon as connecting to every bootstrap address has failed."""
        self._ensure_usable()
        addresses = len(self.config.bootstrap_servers)
        self._metadata.await_cluster(timeout, self._wake, min(addresses, MOST_KEPT))


class Place:
    """The place of one task in the queue of its topic, until it leaves."""

    __slots__ = ("_left", "_line", "_lines", "_moved_up", "_topic")

    def __init__(self, lines: dict[str, deque[Place]], topic: str) -> None:
        self._lines, self._topic = lines, topic
        self._line = lines.setdefault(topic, deque())
        self._line.append(self)
        self._moved_up: asyncio.Future[None] | None = None
        self._left = False

    async def first(self) -> None:
        """Wait until this task is the first in the queue."""
        while self._line[0] is not self:
            self._moved_up = asyncio.get_running_loop().create_future()
            await self._moved_up

    def leave(self) -> None:
        """Leave the queue; the next task becomes the first. A second call does nothing."""
        if self._left:
            return
        self._left = True
        line = self._line
        was_first = line[0] is self
        line.remove(self)
        if not line:
            del self._lines[self._topic]
        elif was_first:
            line[0]._call()

    def _call(self) -> None:
        moved_up = self._moved_up
        if moved_up is not None and not moved_up.done() and not moved_up.get_loop().is_closed():
            moved_up.set_result(None)


class TopicLines:
    """A queue of waiting tasks per topic. Tasks of a closed loop are forgotten.

    A task keeps its place in the queue while it waits for its topic and for memory. Otherwise, a
    task that is woken by new metadata could send before an earlier one that waits for memory. A
    task leaves the queue while it waits for a schema, for a partition, or a second time for its
    topic. For the tasks of one loop. ``by_topic`` is empty while no task waits.
    """

    def __init__(self) -> None:
        self.by_topic: dict[str, deque[Place]] = {}
        self._loop: asyncio.AbstractEventLoop | None = None

    def hold(self, topic: object) -> bool:
        """Whether a task with a record for this topic waits."""
        return isinstance(topic, str) and topic in self.by_topic

    def join(self, topic: str) -> Place:
        """A place at the end of the topic's queue."""
        loop = asyncio.get_running_loop()
        if loop is not self._loop:
            self._loop, self.by_topic = loop, {}
        return Place(self.by_topic, topic)


class Queueing(Sending):
    """Puts records into a producer that does not wait itself.

    For the tasks of one loop. If a task is cancelled while it waits, its record is not queued.

    ``lines`` holds the tasks that wait for their topic or for memory. ``rests`` are tasks that
    queue the remaining records of batches.
    """

    def __init__(
        self,
        native: KafkaProducer,
        max_block: float,
        notifier: Callable[[asyncio.AbstractEventLoop], OutcomeNotifier],
    ) -> None:
        super().__init__(native, notifier, (KprodTimeoutError, WouldWait))
        self._max_block = max_block
        self._lookups = TopicLookups(native.metadata)
        self._memory = MemoryWaiters(self._oldest)
        self.lines = TopicLines()
        self.rests: set[asyncio.Task[None]] = set()
        self.ends = 0  # running calls that end the transaction: no batch may be divided by them

    async def put(self, record: Record) -> FutureRecordMetadata:
        """Queue a record, waiting at most ``max_block_ms``. Raises as ``KafkaProducer.send``."""
        future = None if self.lines.hold(record.topic) else self.put_at_once(*record)
        if future is None:
            future, _ = await self._put_later(record, 0, waits=True)
        return future

    async def put_chosen(
        self, record: Record, choose: Callable[[], int | None]
    ) -> FutureRecordMetadata:
        """As ``put``. When the topic is known, ``choose`` returns the record's partition."""
        topic = check_topic(record.topic)
        if not self.lines.hold(topic) and self.native.metadata.snapshot.topic(topic) is not None:
            return await self.put(record._replace(partition=choose()))
        place = self.lines.join(topic)
        try:
            await self.topic(topic, self._max_block)
            await place.first()
            chosen = record._replace(partition=choose())
            future, _ = await self._put_later(chosen, 0, waits=True, place=place)
            return future
        finally:
            place.leave()

    async def put_many(
        self, topic: str, values: Iterator[Any], keys: Iterator[Any] | None, queued: list[Any]
    ) -> Any:
        """Do ``put_until_waiting`` after the tasks that already wait for this topic."""
        if not self.lines.hold(topic):
            return self.put_until_waiting(topic, values, keys, queued)
        place = self.lines.join(topic)
        try:
            await self.turns.wait()
            await place.first()
            return self.put_until_waiting(topic, values, keys, queued)
        finally:
            place.leave()

    async def put_batch(self, records: Sequence[Record], nbytes: int) -> QueuedBatch:
        """Queue records of at most ``nbytes`` together, or raise as ``put`` and queue none.

        After the first record is queued, the calling task awaits nothing more, so it cannot be
        cancelled. The task ``rest`` of the result queues the records for which there is no memory,
        or no time in this iteration of the loop. This task may fail.
        """
        left, waits = deque(records), not self.turns.admit()
        first, place = await self._put_later(left.popleft(), nbytes if left else 0, waits=waits)
        queued = [first]
        if place is None:
            return QueuedBatch(queued, None)
        try:
            self._put_more(left, queued)
            rest = asyncio.ensure_future(self._put_rest(place, left, queued)) if left else None
        except BaseException as error:
            place.leave()
            self._lose(error)
            raise
        if rest is None:
            place.leave()
        else:
            self.rests.add(rest)
            rest.add_done_callback(partial(self._rest_ended, place))
        return QueuedBatch(queued, rest)

    def _put_more(self, left: deque[Record], queued: list[FutureRecordMetadata]) -> None:
        """Queue records until one has to wait or is refused. Leave that one to ``_put_rest``."""
        with suppress(KprodError):
            while left and (future := self.put_at_once(*left[0])) is not None:
                queued.append(future)
                left.popleft()

    async def _put_rest(
        self, place: Place, left: deque[Record], queued: list[FutureRecordMetadata]
    ) -> None:
        while left:
            await self.turns.wait()
            queued.append(await self._put_first(place, left.popleft()))
            self._put_more(left, queued)

    def _rest_ended(self, place: Place, rest: asyncio.Task[None]) -> None:
        """Clean up in a callback, because a task may be cancelled before it starts."""
        self.rests.discard(rest)
        place.leave()
        error = asyncio.CancelledError() if rest.cancelled() else rest.exception()
        if error is not None:
            self._lose(error)

    async def _put_first(self, place: Place, record: Record) -> FutureRecordMetadata:
        """Queue a record for a task that keeps its place in the queue."""
        now = asyncio.get_running_loop().time
        deadline = now() + self._max_block
        attempts = Attempts(self.native, record)
        try:
            while (future := await self._put_in_order(attempts, 0, place, deadline)) is None:
                await self._await_topic(attempts, deadline - now())
            self.remember(future)
            return future
        except BaseException as error:
            attempts.end(error)
            raise

    def _lose(self, error: BaseException) -> None:
        """Prevent the commit of the transaction, because only a part of a batch was queued."""
        if not isinstance(error, KprodError):
            error = KprodError("a batch was queued in part")
        self.native.record_lost(error)

    async def rests_queued(self) -> None:
        """Wait until every batch of an earlier ``put_batch`` is queued, or has failed."""
        loop = asyncio.get_running_loop()
        for rest in [*self.rests]:
            if rest.get_loop().is_closed():  # and did not cancel its tasks
                self.rests.discard(rest)
                self._lose(asyncio.CancelledError())
        if rests := [rest for rest in self.rests if rest.get_loop() is loop]:
            await asyncio.wait(rests)
            await asyncio.sleep(0)  # their done callbacks run first

    async def _put_later(
        self, record: Record, room: int, *, waits: bool, place: Place | None = None
    ) -> tuple[FutureRecordMetadata, Place | None]:
        """Queue a record, after yielding to the loop if ``waits``.

        ``room`` is the number of bytes of memory that must be free for the records that follow. If
        it is above 0, the caller keeps the returned place, queues these records, and then leaves
        the place. ``place`` is the task's place, if the task is already in the queue.
        """
        attempts = Attempts(self.native, record)
        try:
            return await self._put_by(attempts, record, room, waits, place)
        except BaseException as error:  # including CancelledError
            attempts.end(error)
            raise

    async def _put_by(
        self,
        attempts: Attempts,
        record: Record,
        room: int,
        waits: bool,
        place: Place | None,
    ) -> tuple[FutureRecordMetadata, Place | None]:
        topic = check_topic(record.topic)
        now = asyncio.get_running_loop().time
        deadline = now() + self._max_block
        while True:
            # Before anything is awaited: otherwise a task that comes later, but finds the topic
            # known by then, would queue its record first.
            place = place or self.lines.join(topic)
            keeps, schema = False, None
            try:
                if waits:
                    await self.turns.wait()
                    waits, deadline = False, now() + self._max_block
                future = await self._put_in_order(attempts, room, place, deadline)
                if future is not None:
                    self.remember(future)
                    keeps = room > 0
                    return future, place if keeps else None
            except WouldWait as serializer:
                schema = serializer.wait
            finally:  # before the waits below, which may concern only this record
                if not keeps:
                    place.leave()
            place = None
            if schema is not None:
                await self.elsewhere(schema, "schema")
            else:
                await self._await_topic(attempts, deadline - now())

    async def _put_in_order(
        self, attempts: Attempts, room: int, place: Place, deadline: float
    ) -> FutureRecordMetadata | None:
        """Queue the record; None if its partition or topic has to be looked up first."""
        now = asyncio.get_running_loop().time
        if self.native.metadata.snapshot.topic(attempts.record().topic) is None:
            await self._await_topic(attempts, deadline - now())
        await place.first()
        waited = False
        if self._memory:
            waited = True
            await self._memory.wait(deadline)
        while True:
            if room and self.ends:
                raise IllegalStateError("send_batch(): the transaction is being ended")
            try:
                self.native.ensure_room(room)
                future = attempts.send()
            except BufferFullError:
                self._memory.found_none()
                if now() >= deadline:
                    raise
                waited = True
                await self._memory.wait(deadline)
            except KprodTimeoutError:
                return None
            else:
                if waited:
                    self._memory.found_some()
                return future

    async def _await_topic(self, attempts: Attempts, timeout: float) -> None:
        """Wait for the record's topic. If that fails, the record may become a dead letter."""
        record = attempts.record()
        try:
            await self.topic(record.topic, timeout, record.partition)
            if timeout <= 0:  # it is known, and the record was not queued all the same
                raise KprodTimeoutError(
                    f"a record for topic {record.topic!r} was not queued within"
                    f" {in_seconds(self._max_block)}"
                )
            await asyncio.sleep(0)  # if nothing was awaited: other tasks must have their turn
        except KprodError as error:
            self.native.refused(record, error)
            raise

    def _oldest(self) -> FutureRecordMetadata | None:
        """The oldest record without an outcome, among those that are remembered."""
        while self.under_way and self.under_way[0].is_done:
            self.under_way.popleft()
        return self.under_way[0] if self.under_way else None

    async def topic(self, name: str, timeout: float, partition: int | None = None) -> TopicInfo:
        """The topic, once it is known. Tasks that wait for the same topic share one look-up.

        Raises InvalidTopicError for an invalid name.
        """
        name = check_topic(name)
        metadata = self.native.metadata
        if metadata is not self._lookups.metadata:  # a forked child has its own
            self._lookups = TopicLookups(metadata)
        known = metadata.snapshot.topic(name)
        if known is not None and (partition is None or partition < len(known)):
            return known
        return await self._lookups.find(name, partition, timeout)

    async def elsewhere(self, call: Callable[[], Any], what: str) -> Any:
        """Run a blocking call in a new thread."""
        return await in_thread(call, f"kprod-{what}-{self.native.config.client_id}")
