"""Look-ups of topics for the tasks of a loop: one for many, looked at where the cluster changed"""

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
"""A task that is woken by an error takes so many times as long as one that goes on to send."""

_Key = tuple[str, int | None]


class _Place(NamedTuple):
    """Of one task; in the order of their ends, times in seconds of the loop's clock."""

    ends_at: float
    number: int
    timeout: float
    told: asyncio.Future[TopicInfo]


class _LookUp:
    """One topic that is looked up, and the tasks that wait for it, each with a time limit."""

    def __init__(self, search: Search) -> None:
        self.search = search
        self.places: list[_Place] = []  # a heap
        self.timer: asyncio.TimerHandle | None = None  # for the first of them

    def take_late(self, now: float) -> list[_Place]:
        """Remove those that have no time left."""
        late: list[_Place] = []
        while self.places and self.places[0].ends_at <= now:
            late.append(heappop(self.places))
        return late


class TopicLookups:
    """Used by the tasks of one loop at a time; those of a loop that has ended wait no more.

    No thread waits: whenever something is new about the cluster, the loop looks for all topics
    that are looked up, and wakes the tasks that share one in slices.
    """

    def __init__(self, metadata: Metadata) -> None:
        self._metadata = metadata
        self._numbers = count()  # of tasks, in the order of asking
        self._begin(None)
        metadata.subscribe(MetadataListener(changed=self._changed))

    def _begin(self, loop: asyncio.AbstractEventLoop | None) -> None:
        self._loop = loop
        self._under_way: dict[_Key, _LookUp] = {}
        self._looking = False  # the loop will
        self._waking = False  # the sender's thread, at the end of this turn

    async def find(self, name: str, partition: int | None, timeout: float) -> TopicInfo:
        """Wait until the topic, and the partition if one is given, is known.

        Raises what ``Metadata.await_topic`` raises. Cancelling ends this wait, and no other.
        """
        loop = asyncio.get_running_loop()
        if loop is not self._loop:
            self._begin(loop)
        told: asyncio.Future[TopicInfo] = loop.create_future()
        timeout = max(0.0, timeout)
        place = _Place(loop.time() + timeout, next(self._numbers), timeout, told)
        key = name, partition
        shared = self._under_way.get(key)
        if shared is not None:
            heappush(shared.places, place)
            if shared.places[0] is place:
                self._arm(loop, key, shared)
            return await told
        made = _LookUp(self._metadata.search(name, partition))
        made.places.append(place)
        self._under_way[key] = made  # first: what changes from now on is looked at
        self._arm(loop, key, made)
        self._look(loop, key, made)
        return await told

    def _arm(self, loop: asyncio.AbstractEventLoop, key: _Key, looked_up: _LookUp) -> None:
        """Give up for the first place when its time is over."""
        if looked_up.timer is not None:
            looked_up.timer.cancel()
        when = looked_up.places[0].ends_at
        looked_up.timer = loop.call_at(when, self._give_up, loop, key, looked_up, when)

    def _look(self, loop: asyncio.AbstractEventLoop, key: _Key, looked_up: _LookUp) -> None:
        try:
            found, asked, _ = self._metadata.look(looked_up.search)
        except KprodError as error:
            self._end(loop, key, looked_up, None, error)
            return
        if found is not None:
            self._end(loop, key, looked_up, found, None)
        elif asked and not self._waking:
            # Once for all that are noted in this turn: one request asks about them, and each time
            # it is a system call, which may cost this thread its turn.
            self._waking = True
            loop.call_soon(self._wake)

    def _wake(self) -> None:
        self._waking = False
        self._metadata.wake()

    def _changed(self) -> None:
        """Something is new about the cluster. Any thread."""
        loop = self._loop
        # In this order: a look that has begun takes the mark away, and looks at all once more.
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
        # The clock may be a little behind the time that it has called for.
        late = looked_up.take_late(max(when, loop.time()))
        if looked_up.places:
            self._arm(loop, key, looked_up)
        else:
            self._under_way.pop(key, None)
        # Thousands may be late at once: one error for all that it has the same text for.
        for _, group in groupby(late, lambda place: f"{place.timeout:.3g}"):
            places = list(group)
            error = self._metadata.not_found(looked_up.search, places[0].timeout)
            in_slices(loop, _settle([place.told for place in places], None, error))

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
        told = [place.told for place in sorted(looked_up.places, key=attrgetter("number"))]
        in_slices(loop, _settle(told, topic, failure))


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
                # A copy for each: a traceback grows wherever it is raised.
                place.set_exception(copy.copy(failure))
        yield from range(1 if failure is None else STEPS_OF_A_FAILURE)
