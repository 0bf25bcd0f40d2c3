"""Queueing a record without ever holding the loop: what it has to wait for is awaited"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any, NamedTuple

from kprod.aio.lookups import TopicLookups
from kprod.aio.loop_threads import in_thread
from kprod.aio.memory_waiters import MemoryWaiters
from kprod.cluster.snapshot import TopicInfo
from kprod.errors import BufferFullError, KprodError, KprodTimeoutError, PartitionError
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
    """Of one task in the line of its topic."""

    __slots__ = ("_line", "_told")

    def __init__(self, line: deque[Place]) -> None:
        self._line = line
        self._told: asyncio.Future[None] | None = None

    async def first(self) -> None:
        """Wait until no task is left before this one."""
        while self._line[0] is not self:
            self._told = asyncio.get_running_loop().create_future()
            await self._told

    def call(self) -> None:
        """This one is the first now."""
        told = self._told
        if told is not None and not told.done() and not told.get_loop().is_closed():
            told.set_result(None)


class TopicLines:
    """Used by the tasks of one loop at a time; those of a loop that has ended wait no more.

    A task waits for what it needs while it stands in the line. Without that, one that is woken by
    news of the topic would send before another one that has asked earlier, and waits for memory.
    ``by_topic`` is empty while no task waits.
    """

    def __init__(self) -> None:
        self.by_topic: dict[str, deque[Place]] = {}
        self._loop: asyncio.AbstractEventLoop | None = None

    def hold(self, topic: object) -> bool:
        """Whether a task waits with a record for this topic."""
        return isinstance(topic, str) and topic in self.by_topic

    @contextmanager
    def place(self, topic: str) -> Iterator[Place]:
        """A place at the end of the topic's line, for the length of a ``with`` block."""
        loop = asyncio.get_running_loop()
        if loop is not self._loop:
            self._loop, self.by_topic = loop, {}
        line = self.by_topic.setdefault(topic, deque())
        place = Place(line)
        line.append(place)
        try:
            yield place
        finally:
            was_first = line[0] is place
            line.remove(place)
            if not line and self.by_topic.get(topic) is line:
                del self.by_topic[topic]
            elif line and was_first:
                line[0].call()


class Queueing(Sending):
    """Puts records into a producer that never waits itself (``max_block_ms=0``).

    Used by the tasks of one loop at a time. A task that is cancelled while it waits leaves nothing
    behind: its record was not queued.

    ``rests`` queue what is left of batches; what is put after a batch waits for its rest. In
    ``lines`` are the tasks that wait for something of their topic, or for memory.
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

    async def put(self, record: Record) -> FutureRecordMetadata:
        """Queue a record. Raises what ``KafkaProducer.send`` raises, after ``max_block_ms``."""
        if self.rests:
            await self.rests_queued()
        return await self._put(record)

    def goes_behind(self, topic: object) -> bool:
        """Whether a record has to wait for others that were asked for before it."""
        if not (self.lines.by_topic or self.rests):
            return False
        return bool(self.rests) or self.lines.hold(topic)

    async def _put(self, record: Record) -> FutureRecordMetadata:
        future = None if self.lines.hold(record.topic) else self.put_at_once(*record)
        if future is None:
            await self.turns.wait()
            future = await self._put_later(record, 0)
        return future

    async def put_batch(self, records: Sequence[Record], nbytes: int) -> QueuedBatch:
        """Queue records, ``nbytes`` at most, all or none: raises as ``put`` before one is queued.

        Cancelling this task ends it before the first is queued or not at all: it awaits nothing
        after that. The task ``rest`` queues what finds no room then, or no time in this turn.
        """
        await self.rests_queued()
        if not self.turns.admit():
            await self.turns.wait()
        left = deque(records)
        queued = [await self._put_later(left.popleft(), nbytes if left else 0)]
        with suppress(KprodError):  # which ``rest`` meets again
            while left and (future := self.put_at_once(*left[0])) is not None:
                queued.append(future)
                left.popleft()
        if not left:
            return QueuedBatch(queued, None)
        rest = asyncio.ensure_future(self._put_rest(left, queued))
        self.rests.add(rest)
        rest.add_done_callback(self.rests.discard)
        return QueuedBatch(queued, rest)

    async def _put_rest(self, left: deque[Record], queued: list[FutureRecordMetadata]) -> None:
        try:
            while left:
                queued.append(await self._put(left.popleft()))
        except KprodError as error:
            self.native.record_lost(error)  # a commit would divide the batch
            raise

    async def rests_queued(self) -> None:
        """Wait until every batch that was put is queued, or has failed."""
        while self.rests:
            await asyncio.wait(self.rests)

    async def _put_later(self, record: Record, room: int) -> FutureRecordMetadata:
        """``room``: so many bytes of memory have to be there, too."""
        attempts = Attempts(self.native, record)
        try:
            future = await self._put_by(attempts, record, room)
            self.remember(future)
            return future
        except BaseException as error:  # a cancelled task's as well
            attempts.end(error)
            raise

    async def _put_by(self, attempts: Attempts, record: Record, room: int) -> FutureRecordMetadata:
        topic = check_topic(record.topic)
        now = asyncio.get_running_loop().time
        deadline = now() + self._max_block
        while True:
            # What follows the block is waited for outside of the line: it may be this record's own.
            try:
                with self.lines.place(topic) as place:
                    future = await self._put_in_line(attempts, record, room, place, deadline)
            except WouldWait as serializer:
                await self.elsewhere(serializer.wait, "schema")
            else:
                if future is not None:
                    return future
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
