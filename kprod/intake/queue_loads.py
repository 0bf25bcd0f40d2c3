"""What the sender has seen of the queues, for the partitioner that draws by them."""

from __future__ import annotations

import random
from collections.abc import Collection, Iterable, Mapping

from kprod.cluster.snapshot import TopicInfo
from kprod.intake.load_table import LoadTable

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

    def draw(self, topic: TopicInfo, rng: random.Random) -> int | None:
        """One of the topic's partitions that have a leader; None when all are equally good."""
        self.topics.add(topic.name)
        table = self._table(self._look, topic)
        return None if table is None else table.partition(rng.randrange(table.total))

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
