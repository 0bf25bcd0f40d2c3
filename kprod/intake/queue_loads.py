"""Queue loads, as the sender measures them, and the partitions drawn by them (KIP-794)."""

from __future__ import annotations

import random
from bisect import bisect_left, bisect_right
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

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
        sizes = [queued[partitions[place]] for place in self._places]
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


_NOTHING: Mapping[int, int] = {}
_NONE: frozenset[int] = frozenset()


class _Look:
    """One look of the sender at the queues, and the tables made of it so far."""

    __slots__ = ("avoided", "queued", "tables")

    def __init__(
        self, queued: Mapping[str, Mapping[int, int]], avoided: frozenset[int] = _NONE
    ) -> None:
        self.queued = queued
        self.avoided = avoided
        self.tables: dict[str, tuple[TopicInfo, LoadTable | None]] = {}


class QueueLoads:
    """Draws partitions by how little is queued for them (the adaptive part of KIP-794).

    Brokers that could not take what was ready for them for longer than ``availability_timeout``
    seconds are avoided; 0 avoids none. Where Kafka's ``BuiltInPartitioner`` waits until every
    partition had a batch, a partition without any counts as an empty queue here, and a table is
    made when it is needed, not in every turn of the sender.

    ``topics`` are those drawn for. ``measured`` is for the sender's thread; ``draw`` for any, one
    at a time.
    """

    def __init__(self, availability_timeout: float = 0.0) -> None:
        self.topics: set[str] = set()
        self._availability_timeout = availability_timeout
        self.avoids_brokers = availability_timeout > 0.0
        self._waiting_since: dict[int, float] = {}
        self._look = _Look({})  # replaced as a whole: a reader sees all of one look

    def measured(
        self, queued: Mapping[str, Mapping[int, int]], waiting: Collection[int], now: float
    ) -> None:
        """The sender looked: batches by topic and partition, and nodes that could not take any.

        Called once per turn; of ``queued`` at least ``topics`` must be there if anything is. What
        was drawn from stays while nothing else is seen: the same object, which nobody changes.
        """
        if waiting or self._waiting_since:
            since = self._waiting_since
            self._waiting_since = {node: since.get(node, now) for node in waiting}
        avoided = self._avoided(now) if self._availability_timeout else _NONE
        look = self._look
        if queued is not look.queued or avoided != look.avoided:
            self._look = _Look(queued, avoided)

    def forget(self, topics: Iterable[str]) -> None:
        """Nothing is sent to these topics any more.

        What ``draw`` adds meanwhile may be lost, too: it adds the topic again whenever it draws.
        """
        self.topics = self.topics.difference(topics)
        self._look = _Look(self._look.queued, self._look.avoided)

    def _avoided(self, now: float) -> frozenset[int]:
        limit = self._availability_timeout
        waiting = self._waiting_since.items()
        return frozenset(node for node, since in waiting if now - since > limit)

    def draw(self, topic: TopicInfo, rng: random.Random, count: int = 1) -> list[int] | None:
        """``count`` of the topic's partitions with a leader; None when all are equally good."""
        self.topics.add(topic.name)
        table = self._table(self._look, topic)
        if table is None:
            return None
        return table.partitions(rng.choices(range(table.total), k=count))

    def _table(self, look: _Look, topic: TopicInfo) -> LoadTable | None:
        made_for, table = look.tables.get(topic.name, (None, None))
        if made_for is not topic:
            table = _made(topic, look.queued.get(topic.name, _NOTHING), look.avoided)
            look.tables[topic.name] = topic, table
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
