"""Topic look-ups, which tasks of a loop share. Changes of the cluster trigger checks."""

from __future__ import annotations

import asyncio
import copy
from collections.abc import Iterator
from functools import partial
from heapq import heappop, heappush
from itertools import count, groupby
from operator import attrgetter
from typing import NamedTuple

from kprod.aio.loop_threads import call_soon
from kprod.buffer.delivery import in_slices
from kprod.cluster.metadata import Metadata, MetadataListener
from kprod.cluster.metadata_errors import Search
from kprod.cluster.snapshot import TopicInfo
from kprod.errors import KprodError

STEPS_OF_A_FAILURE = 8
"""Waking a task with an error takes about this many times as long as with a topic."""

_Key = tuple[str, int | None]


class _Waiter(NamedTuple):
    """A waiting task. Ordered by the deadline, in seconds of the loop's clock."""

    ends_at: float
    number: int
    timeout: float
    future: asyncio.Future[TopicInfo]


class _LookUp:
    """A topic that is being looked up, and the tasks that wait for it until their deadlines."""

    def __init__(self, search: Search) -> None:
        self.search = search
        self.waiters: list[_Waiter] = []  # a heap
        self.timer: asyncio.TimerHandle | None = None  # for the earliest deadline

    def take_late(self, now: float) -> list[_Waiter]:
        """Remove and return the tasks whose deadline has passed."""
        late: list[_Waiter] = []
        while self.waiters and self.waiters[0].ends_at <= now:
            late.append(heappop(self.waiters))
        return late


class TopicLookups:
    """The look-ups of the tasks of one loop. If the loop is closed, its tasks are forgotten.

    No thread waits. Instead, whenever the cluster's metadata changes, the loop checks all topics
    that are being looked up. It wakes the tasks that share a look-up in slices.
    """

    def __init__(self, metadata: Metadata) -> None:
        self.metadata = metadata
        self._numbers = count()  # of tasks, in the order of their calls
        self._begin(None)
        metadata.subscribe(MetadataListener(changed=self._changed))

    def _begin(self, loop: asyncio.AbstractEventLoop | None) -> None:
        self._loop = loop
        self._under_way: dict[_Key, _LookUp] = {}
        self._looking = False  # a check is scheduled in the loop
        self._waking = False  # a wake-up of the sender is scheduled for this loop iteration

    async def find(self, name: str, partition: int | None, timeout: float) -> TopicInfo:
        """Wait until the topic is known and, if ``partition`` is given, this partition.

        Raises what ``Metadata.await_topic`` raises. Cancelling a task ends only the wait of this
        task.
        """
        loop = asyncio.get_running_loop()
        if loop is not self._loop:
            self._begin(loop)
        future: asyncio.Future[TopicInfo] = loop.create_future()
        timeout = max(0.0, timeout)
        waiter = _Waiter(loop.time() + timeout, next(self._numbers), timeout, future)
        key = name, partition
        shared = self._under_way.get(key)
        if shared is not None:
            heappush(shared.waiters, waiter)
            if shared.waiters[0] is waiter:
                self._arm(loop, key, shared)
            return await future
        made = _LookUp(self.metadata.search(name, partition))
        made.waiters.append(waiter)
        self._under_way[key] = made  # first: changes from now on trigger a check
        self._arm(loop, key, made)
        self._look(loop, key, made)
        return await future

    def _arm(self, loop: asyncio.AbstractEventLoop, key: _Key, looked_up: _LookUp) -> None:
        """Start the timer for the earliest deadline."""
        if looked_up.timer is not None:
            looked_up.timer.cancel()
        when = looked_up.waiters[0].ends_at
        looked_up.timer = loop.call_at(when, self._give_up, loop, key, looked_up, when)

    def _look(self, loop: asyncio.AbstractEventLoop, key: _Key, looked_up: _LookUp) -> None:
        try:
            found, asked, _ = self.metadata.check(looked_up.search)
        except KprodError as error:
            self._end(loop, key, looked_up, None, error)
            return
        if found is not None:
            self._end(loop, key, looked_up, found, None)
        elif asked and not self._waking:
            # Once per loop iteration: one request asks for all topics, and each wake-up is a system
            # call that may make this thread lose the GIL.
            self._waking = True
            loop.call_soon(self._wake)

    def _wake(self) -> None:
        self._waking = False
        self.metadata.wake()

    def _changed(self) -> None:
        """React to changed metadata of the cluster. May be called by any thread."""
        loop = self._loop
        # The check clears the flag before it starts: a change after that schedules another check.
        if loop is not None and self._under_way and not self._looking:
            self._looking = True
            call_soon(loop, partial(self._look_again, loop))

    def _look_again(self, loop: asyncio.AbstractEventLoop) -> None:
        self._looking = False
        if loop is self._loop:
            in_slices(loop, self._looks(loop))

    def _looks(self, loop: asyncio.AbstractEventLoop) -> Iterator[None]:
        for key, looked_up in list(self._under_way.items()):
            yield
            if self._under_way.get(key) is looked_up:
                self._look(loop, key, looked_up)

    def _give_up(
        self, loop: asyncio.AbstractEventLoop, key: _Key, looked_up: _LookUp, when: float
    ) -> None:
        # The timer may fire slightly before its time on the loop's clock.
        late = looked_up.take_late(max(when, loop.time()))
        if looked_up.waiters:
            self._arm(loop, key, looked_up)
        else:
            self._under_way.pop(key, None)
        # Thousands may time out at once: those with the same text share one error.
        for _, group in groupby(late, lambda waiter: f"{waiter.timeout:.3g}"):
            waiters = list(group)
            error = self.metadata.not_found(looked_up.search, waiters[0].timeout)
            in_slices(loop, _settle([waiter.future for waiter in waiters], None, error))

    def _end(
        self,
        loop: asyncio.AbstractEventLoop,
        key: _Key,
        looked_up: _LookUp,
        topic: TopicInfo | None,
        failure: KprodError | None,
    ) -> None:
        self._under_way.pop(key, None)
        if looked_up.timer is not None:
            looked_up.timer.cancel()
        futures = [waiter.future for waiter in sorted(looked_up.waiters, key=attrgetter("number"))]
        in_slices(loop, _settle(futures, topic, failure))


def _settle(
    waiting: list[asyncio.Future[TopicInfo]],
    topic: TopicInfo | None,
    failure: KprodError | None,
) -> Iterator[object]:
    for place in waiting:
        if not place.done():  # cancelled
            if topic is not None:
                place.set_result(topic)
            elif failure is not None:
                # A copy for each: raising it extends its traceback.
                place.set_exception(copy.copy(failure))
        yield from range(1 if failure is None else STEPS_OF_A_FAILURE)
