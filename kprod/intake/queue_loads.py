"""Queue loads, and the partitions drawn by them (KIP-794)."""

from __future__ import annotations

import random
from bisect import bisect_left, bisect_right
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Protocol, TypeAlias

from kprod.cluster.snapshot import TopicInfo


class LoadTable:
    """Partitions with a weight each: the length of the longest queue + 1 - that of its own.

    The load table of Kafka's ``BuiltInPartitioner`` (KIP-794): numbers from 0 on belong to the
    partitions in order, to each as many as its weight. ``partitions`` are ascending; ``queued`` has
    the length of every queue that is not empty. Takes time and room for those queues only, however
    many partitions there are. Immutable.
    """

    __slots__ = ("_above", "_ends", "_partitions", "_places", "even", "total")

    def __init__(self, partitions: Sequence[int], queued: Mapping[int, int]) -> None:
        self._partitions = partitions
        self._places = list(_places(partitions, queued))
        sizes = [*map(queued.__getitem__, map(partitions.__getitem__, self._places))]
        self._above = max(sizes, default=0) + 1
        self._ends: list[int] = []
        passed = end = 0
        for place, size in zip(self._places, sizes, strict=True):
            end += (place - passed + 1) * self._above - size
            passed = place + 1
            self._ends.append(end)
        self.total = end + (len(partitions) - passed) * self._above
        self.even = not sizes or (len(sizes) == len(partitions) and min(sizes) == max(sizes))

    def partitions(self, numbers: Iterable[int]) -> list[int]:
        """The partitions that ``numbers``, from 0 to ``total`` - 1, fall on."""
        found = []
        for number in numbers:
            index = bisect_right(self._ends, number)
            start, place = (self._ends[index - 1], self._places[index - 1] + 1) if index else (0, 0)
            place += (number - start) // self._above  # so far between two queues; or the next one
            if index < len(self._places):
                place = min(place, self._places[index])
            found.append(self._partitions[place])
        return found


def _places(partitions: Sequence[int], queued: Mapping[int, int]) -> Iterator[int]:
    """Where the partitions with a queue stand in ``partitions``, if they do."""
    for partition in sorted(queued):
        place = bisect_left(partitions, partition)
        if place < len(partitions) and partitions[place] == partition:
            yield place


class Queues(Protocol):
    """What waits for the brokers, as the sender has seen it. For any thread."""

    @property
    def changes(self) -> int:
        """Grows when the length of a queue may have changed."""

    def depths(self, topic: str) -> Mapping[int, int]:
        """How many batches are queued, by partition; empty queues are not named."""


_NONE: frozenset[int] = frozenset()
_TableOf: TypeAlias = tuple[TopicInfo, int, frozenset[int], LoadTable | None]


class QueueLoads:
    """Draws partitions by how little is queued for them (the adaptive part of KIP-794).

    Brokers that could not take what was ready for them for longer than ``availability_timeout``
    seconds are avoided; 0 avoids none. Where Kafka's ``BuiltInPartitioner`` waits until every
    partition had a batch, a partition without any counts as an empty queue here, and a table is
    made when it is needed, and queues have changed.

    ``waiting`` is for the sender's thread; ``draw`` for any, one at a time.
    """

    def __init__(self, availability_timeout: float = 0.0) -> None:
        self._availability_timeout = availability_timeout
        self.avoids_brokers = availability_timeout > 0.0
        self._waiting_since: dict[int, float] = {}
        self._avoided = _NONE
        self._queues: Queues | None = None
        self._tables: dict[str, _TableOf] = {}  # with what they were made of

    @property
    def topics(self) -> Collection[str]:
        """Those drawn for."""
        return self._tables.keys()

    def watch(self, queues: Queues) -> None:
        """Draw by the length of ``queues``."""
        self._queues = queues

    def waiting(self, nodes: Collection[int], now: float) -> None:
        """The nodes that could not take what was ready for them; to be called while there are."""
        since = self._waiting_since
        self._waiting_since = {node: since.get(node, now) for node in nodes}
        limit = self._availability_timeout
        if limit:
            waiting = self._waiting_since.items()
            self._avoided = frozenset(node for node, since in waiting if now - since > limit)

    def forget(self, topics: Iterable[str]) -> None:
        """Nothing is sent to these topics any more.

        What ``draw`` adds meanwhile may stay: the next call forgets it.
        """
        for topic in topics:
            self._tables.pop(topic, None)

    def draw(self, topic: TopicInfo, rng: random.Random, count: int = 1) -> list[int] | None:
        """``count`` of the topic's partitions with a leader; None when all are equally good."""
        table = self._table(topic)
        if table is None:
            return None
        return table.partitions([int(rng.random() * table.total) for _ in range(count)])

    def _table(self, topic: TopicInfo) -> LoadTable | None:
        queues, avoided = self._queues, self._avoided
        changes = 0 if queues is None else queues.changes  # first: they may change meanwhile
        made = self._tables.get(topic.name)
        if made is not None:
            made_for, before, avoided_then, table = made
            if made_for is topic and before == changes and avoided_then == avoided:
                return table
        depths = {} if queues is None else queues.depths(topic.name)
        table = _made(topic, depths, avoided)
        self._tables[topic.name] = topic, changes, avoided, table
        return table


def _made(
    topic: TopicInfo, queued: Mapping[int, int], avoided: Collection[int]
) -> LoadTable | None:
    candidates = topic.available
    if avoided:
        led_by = topic.partitions
        candidates = tuple(p for p in candidates if led_by[p].leader_id not in avoided)
    if not candidates:
        return None
    table = LoadTable(candidates, queued)
    return None if table.even and len(candidates) == len(topic.available) else table
