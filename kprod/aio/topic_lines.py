"""Tasks with records for one topic that have to wait: they send in the order of asking"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager


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
