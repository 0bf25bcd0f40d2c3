"""Look-ups of topics for the tasks of a loop: one for many, looked at where the cluster changed"""

from __future__ import annotations

import asyncio
import copy
from collections.abc import Iterator
from functools import partial

from kprod.aio.loop_threads import call_soon
from kprod.buffer.delivery import in_slices
from kprod.cluster.metadata import Metadata, MetadataListener
from kprod.cluster.metadata_errors import Search
from kprod.cluster.snapshot import TopicInfo
from kprod.errors import KprodError

STEPS_OF_A_FAILURE = 8
"""A task that is woken by an error takes so many times as long as one that goes on to send."""

_Key = tuple[str, int | None]


class _LookUp:
    """One topic that is looked up, and the tasks that wait for it."""

    def __init__(self, search: Search, timeout: float) -> None:
        self.search = search
        self.timeout = timeout
        self.places: list[asyncio.Future[TopicInfo]] = []
        self.deadline: asyncio.TimerHandle | None = None


class TopicLookups:
    """Used by the tasks of one loop at a time; those of a loop that has ended wait no more.

    No thread waits: whenever something is new about the cluster, the loop looks for all topics
    that are looked up, and wakes the tasks that share one in slices.
    """

    def __init__(self, metadata: Metadata) -> None:
        self._metadata = metadata
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
        place: asyncio.Future[TopicInfo] = loop.create_future()
        key = name, partition
        shared = self._under_way.get(key)
        if shared is not None:
            shared.places.append(place)
            return await place
        made = _LookUp(self._metadata.search(name, partition), max(0.0, timeout))
        made.places.append(place)
        self._under_way[key] = made  # first: what changes from now on is looked at
        made.deadline = loop.call_later(made.timeout, self._give_up, loop, key, made)
        self._look(loop, key, made)
        return await place

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

    def _give_up(self, loop: asyncio.AbstractEventLoop, key: _Key, looked_up: _LookUp) -> None:
        error = self._metadata.not_found(looked_up.search, looked_up.timeout)
        self._end(loop, key, looked_up, None, error)

    def _end(
        self,
        loop: asyncio.AbstractEventLoop,
        key: _Key,
        looked_up: _LookUp,
        topic: TopicInfo | None,
        failure: KprodError | None,
    ) -> None:
        self._under_way.pop(key, None)
        if looked_up.deadline is not None:
            looked_up.deadline.cancel()
        in_slices(loop, _settle(looked_up.places, topic, failure))


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
