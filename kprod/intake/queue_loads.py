"""Queue lengths, and partitions drawn according to them (KIP-794)."""

from __future__ import annotations

import random
from bisect import bisect_left, bisect_right
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Protocol, TypeAlias

from kprod.cluster.snapshot import TopicInfo


class LoadTable:
    """Partitions with weights: length of the longest queue + 1 - length of the partition's queue.

    This is the load table of Kafka's ``BuiltInPartitioner`` (KIP-794). The numbers from 0 to
    ``total`` - 1 are assigned to the partitions in order. Each partition gets as many numbers as
    its weight. ``partitions`` must be ascending. ``queued`` contains the length of every queue that
    is not empty. Time and memory depend on the number of these queues, not on the number of
    partitions. Immutable.
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
        """The partitions to which ``numbers``, from 0 to ``total`` - 1, are assigned."""
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
    """The indexes in ``partitions`` of the partitions that have a queue."""
    for partition in sorted(queued):
        place = bisect_left(partitions, partition)
        if place < len(partitions) and partitions[place] == partition:
            yield place


class Queues(Protocol):
    """The lengths of the queues, as the sender has last seen them. Any thread may read them."""

    @property
    def changes(self) -> int:
        """A number that grows when the length of a queue may have changed."""

    def depths(self, topic: str) -> Mapping[int, int]:
        """How many batches are queued, by partition; empty queues are omitted."""


_NONE: frozenset[int] = frozenset()
_TableOf: TypeAlias = tuple[TopicInfo, int, frozenset[int], LoadTable | None]


class QueueLoads:
    """Draws partitions that have short queues more often (the adaptive part of KIP-794).

    A broker is avoided if it could not take its ready batches for more than
    ``availability_timeout`` seconds. With 0, no broker is avoided. Kafka's ``BuiltInPartitioner``
    waits until every partition has had a batch. Here, a partition without one counts as an empty
    queue. A table is made only when it is needed and the queues have changed.

    Only the sender thread may call ``waiting``. Any thread may call ``draw``, but only one at a
    time.
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
        """The topics that partitions were drawn for."""
        return self._tables.keys()

    def watch(self, queues: Queues) -> None:
        """Draw according to the lengths of ``queues``."""
        self._queues = queues

    def waiting(self, nodes: Collection[int], now: float) -> None:
        """Set the nodes that cannot take the batches ready for them.

        Call it repeatedly while there are any, because the time that they have been waiting counts.
        """
        since = self._waiting_since
        self._waiting_since = {node: since.get(node, now) for node in nodes}
        limit = self._availability_timeout
        if limit:
            waiting = self._waiting_since.items()
            self._avoided = frozenset(node for node, since in waiting if now - since > limit)

    def forget(self, topics: Iterable[str]) -> None:
        """Forget these topics, because nothing is sent to them any more.

        If ``draw`` adds one meanwhile, it stays until the next call.
        """
        for topic in topics:
            self._tables.pop(topic, None)

    def draw(self, topic: TopicInfo, rng: random.Random, count: int = 1) -> list[int] | None:
        """Draw ``count`` of the topic's partitions with a leader; None if all are equally good."""
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
