"""Queueing a record without ever holding the loop: what it has to wait for is awaited"""

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
from kprod.cluster.snapshot import TopicInfo
from kprod.errors import (
    BufferFullError,
    IllegalStateError,
    KprodError,
    KprodTimeoutError,
    PartitionError,
)
from kprod.intake.arguments import check_topic, checked_record
from kprod.intake.attempts import Attempts
from kprod.intake.serializers import WouldWait
from kprod.producer import KafkaProducer
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
    """Records that were queued together; ``rest`` adds those that have to wait."""

    queued: list[FutureRecordMetadata]
    rest: asyncio.Task[None] | None


class NativeProducer(KafkaProducer):
    """kprod's producer, for a loop: a record that has to wait for memory meets no interceptor yet.

    ``Attempts`` sends it then. A record that would fit into an open batch may take that way, too.
    """

    def _send(self, *given: Any, **named: Any) -> FutureRecordMetadata:
        accumulator = self._accumulator
        if self.has_interceptors and accumulator.pool.available < accumulator.batch_size:
            raise BufferFullError("a batch more does not fit into buffer_memory")
        return super()._send(*given, **named)


class Place:
    """Of one task in the line of its topic, until it leaves."""

    __slots__ = ("_line", "_lines", "_told", "_topic")

    def __init__(self, lines: dict[str, deque[Place]], topic: str) -> None:
        self._lines, self._topic = lines, topic
        self._line = lines.setdefault(topic, deque())
        self._line.append(self)
        self._told: asyncio.Future[None] | None = None

    async def first(self) -> None:
        """Wait until no task is left before this one."""
        while self._line[0] is not self:
            self._told = asyncio.get_running_loop().create_future()
            await self._told

    def leave(self) -> None:
        """Give it up: the next one is the first now."""
        line = self._line
        was_first = line[0] is self
        line.remove(self)
        if not line:
            del self._lines[self._topic]
        elif was_first:
            line[0]._call()

    def _call(self) -> None:
        told = self._told
        if told is not None and not told.done() and not told.get_loop().is_closed():
            told.set_result(None)


class TopicLines:
    """Used by the tasks of one loop at a time; those of a loop that has ended wait no more.

    A task waits for its topic and for memory while it stands in the line. Without that, one that
    is woken by news of the topic would send before another one that has asked earlier, and waits
    for memory. A schema, a partition, or the topic once more are waited for outside of it.
    ``by_topic`` is empty while no task waits.
    """

    def __init__(self) -> None:
        self.by_topic: dict[str, deque[Place]] = {}
        self._loop: asyncio.AbstractEventLoop | None = None

    def hold(self, topic: object) -> bool:
        """Whether a task waits with a record for this topic."""
        return isinstance(topic, str) and topic in self.by_topic

    def join(self, topic: str) -> Place:
        """A place at the end of the topic's line."""
        loop = asyncio.get_running_loop()
        if loop is not self._loop:
            self._loop, self.by_topic = loop, {}
        return Place(self.by_topic, topic)


class Queueing(Sending):
    """Puts records into a producer that never waits itself (``max_block_ms=0``).

    Used by the tasks of one loop at a time. A task that is cancelled while it waits leaves nothing
    behind: its record was not queued.

    In ``lines`` are the tasks that wait for something of their topic, or for memory, and ``rests``,
    which queue what is left of batches.
    """

    def __init__(
        self,
        native: KafkaProducer,
        max_block: float,
        notifier: Callable[[asyncio.AbstractEventLoop], OutcomeNotifier],
    ) -> None:
        super().__init__(native, notifier, (KprodTimeoutError, PartitionError, WouldWait))
        self._max_block = max_block
        self._lookups = TopicLookups(native.metadata)
        self._memory = MemoryWaiters(self._oldest)
        self.lines = TopicLines()
        self.rests: set[asyncio.Task[None]] = set()
        self.ends = 0  # calls under way that end the transaction: it must get no part of a batch

    async def put(self, record: Record) -> FutureRecordMetadata:
        """Queue a record. Raises what ``KafkaProducer.send`` raises, after ``max_block_ms``."""
        future = None if self.lines.hold(record.topic) else self.put_at_once(*record)
        if future is None:
            await self.turns.wait()
            future, _ = await self._put_later(record, 0)
        return future

    async def put_many(
        self, topic: str, values: Iterator[Any], keys: Iterator[Any] | None, queued: list[Any]
    ) -> Any:
        """``put_until_waiting``, behind the tasks that wait with a record for this topic."""
        if not self.lines.hold(topic):
            return self.put_until_waiting(topic, values, keys, queued)
        await self.turns.wait()  # as a task with one record, which is to be overtaken by none
        place = self.lines.join(topic)
        try:
            await place.first()
            return self.put_until_waiting(topic, values, keys, queued)
        finally:
            place.leave()

    async def put_batch(self, records: Sequence[Record], nbytes: int) -> QueuedBatch:
        """Queue records, ``nbytes`` at most: raises as ``put`` before one is queued.

        Cancelling this task ends it before the first is queued or not at all: it awaits nothing
        after that. The task ``rest`` queues what finds no room then, or no time in this turn, and
        may fail.
        """
        if not self.turns.admit():
            await self.turns.wait()
        left = deque(records)
        first, place = await self._put_later(left.popleft(), nbytes if left else 0)
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
        """Queue records until one has to wait, or is refused: ``_put_rest`` meets it again."""
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
        """A callback: a task that is cancelled before it begins runs nothing of its own."""
        self.rests.discard(rest)
        place.leave()
        error = asyncio.CancelledError() if rest.cancelled() else rest.exception()
        if error is not None:
            self._lose(error)

    async def _put_first(self, place: Place, record: Record) -> FutureRecordMetadata:
        """Put a record by a task that stays in its place."""
        now = asyncio.get_running_loop().time
        deadline = now() + self._max_block
        attempts = Attempts(self.native, record)
        try:
            while (future := await self._put_in_line(attempts, record, 0, place, deadline)) is None:
                await self._await_topic(record, deadline - now())
            self.remember(future)
            return future
        except BaseException as error:
            attempts.end(error)
            raise

    def _lose(self, error: BaseException) -> None:
        """Records of a batch are queued, and others never will be: a commit would divide it."""
        if not isinstance(error, KprodError):
            error = KprodError("a batch was queued in part")
        self.native.record_lost(error)

    async def rests_queued(self) -> None:
        """Wait until every batch that was put before now is queued, or has failed."""
        loop = asyncio.get_running_loop()
        for rest in [*self.rests]:
            if rest.get_loop().is_closed():  # without having cancelled its tasks
                self.rests.discard(rest)
                self._lose(asyncio.CancelledError())
        if rests := [rest for rest in self.rests if rest.get_loop() is loop]:
            await asyncio.wait(rests)
            await asyncio.sleep(0)  # the callbacks of their ends run first

    async def _put_later(
        self, record: Record, room: int
    ) -> tuple[FutureRecordMetadata, Place | None]:
        """``room``: so many bytes of memory have to be there, too, for records that follow.

        Those follow in the place that is returned, which is to be left.
        """
        attempts = Attempts(self.native, record)
        try:
            return await self._put_by(attempts, record, room)
        except BaseException as error:  # a cancelled task's as well
            attempts.end(error)
            raise

    async def _put_by(
        self, attempts: Attempts, record: Record, room: int
    ) -> tuple[FutureRecordMetadata, Place | None]:
        topic = check_topic(record.topic)
        now = asyncio.get_running_loop().time
        deadline = now() + self._max_block
        while True:
            place = self.lines.join(topic)
            keeps, schema = False, None
            try:
                future = await self._put_in_line(attempts, record, room, place, deadline)
                if future is not None:
                    self.remember(future)
                    keeps = room > 0
                    return future, place if keeps else None
            except WouldWait as serializer:
                schema = serializer.wait
            finally:  # first: what is waited for then may be this record's own
                if not keeps:
                    place.leave()
            if schema is not None:
                await self.elsewhere(schema, "schema")
            else:
                await self._await_topic(record, deadline - now())

    async def _put_in_line(
        self, attempts: Attempts, record: Record, room: int, place: Place, deadline: float
    ) -> FutureRecordMetadata | None:
        """None where the partition, or the topic once more, is to be looked up first."""
        now = asyncio.get_running_loop().time
        if self.native.metadata.snapshot.topic(check_topic(record.topic)) is None:
            await self._await_topic(record, deadline - now())
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

    async def _await_topic(self, record: Record, timeout: float) -> None:
        """``topic`` of a record; one that the native producer has never seen may be a letter."""
        try:
            await self.topic(record.topic, timeout, record.partition)
        except KprodError as error:
            self.native.refused(checked_record(*record), error)
            raise

    def _oldest(self) -> FutureRecordMetadata | None:
        """The oldest record that is remembered, and has no outcome."""
        while self.under_way and self.under_way[0].is_done:
            self.under_way.popleft()
        return self.under_way[0] if self.under_way else None

    async def topic(self, name: str, timeout: float, partition: int | None = None) -> TopicInfo:
        """The topic, once it is known; many that wait for the same share one look-up.

        Raises InvalidTopicError for a name that no request can have.
        """
        name = check_topic(name)
        known = self.native.metadata.snapshot.topic(name)
        if known is not None and (partition is None or partition < len(known)):
            return known
        return await self._lookups.find(name, partition, timeout)

    async def elsewhere(self, call: Callable[[], Any], what: str) -> Any:
        """A call that waits, in a thread of its own."""
        return await in_thread(call, f"kprod-{what}-{self.native.config.client_id}")
