"""Topics, leaders, and each broker's view of them."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple
from uuid import UUID

from tests.simulation.events import EventQueue
from tests.simulation.model.partition_log import PartitionLog
from tests.simulation.setup import Setup

UNKNOWN_TOPIC, LEADER_NOT_AVAILABLE = 3, 5
NO_LEADER = -1


@dataclass(slots=True, eq=False)
class Partition:
    log: PartitionLog
    leader: int
    epoch: int = 0


@dataclass(slots=True, eq=False)
class Topic:
    name: str
    topic_id: UUID
    partitions: list[Partition]


class BrokerAddress(NamedTuple):
    node_id: int
    host: str
    port: int


class View(NamedTuple):
    """The state that one broker knows; ``number`` counts the changes of the cluster."""

    number: int
    brokers: tuple[BrokerAddress, ...]
    topics: dict[str, dict[str, Any]]


class Cluster:
    """The cluster's state. Brokers act on it at once, but metadata answers may lag behind."""

    def __init__(
        self,
        setup: Setup,
        events: EventQueue,
        rng: random.Random,
        addresses: list[BrokerAddress],
    ) -> None:
        self.setup = setup
        self.addresses = addresses
        self.cluster_id = "simulated"
        self.up = [True] * setup.nodes
        self.topics: dict[str, Topic] = {}
        self.logs: list[PartitionLog] = []  # of every incarnation of every topic
        self.hidden: dict[str, int] = {}  # topics that metadata answers with an error
        self.unlisted: set[int] = set()  # brokers that metadata answers leave out
        self.refused_permanently = False  # authorization failed
        self.next_producer_id = 1000
        self._events = events
        self._rng = rng
        self.changes = 0
        self._listeners: list[Callable[[View], None]] = []
        for name, count in zip(setup.topics, setup.partitions, strict=True):
            self._create(name, count)

    # Topics -----------------------------------------------------------------------------------

    def _create(self, name: str, count: int) -> None:
        topic_id = UUID(int=self._rng.getrandbits(128))
        logs = [self._new_log(name, topic_id, number) for number in range(count)]
        self.logs += logs
        led = [Partition(log, self._alive_from(number)) for number, log in enumerate(logs)]
        self.topics[name] = Topic(name, topic_id, led)

    def _new_log(self, name: str, topic_id: UUID, partition: int) -> PartitionLog:
        return PartitionLog(name, topic_id, partition, self.setup.max_batch_bytes)

    def delete(self, name: str) -> None:
        del self.topics[name]
        self.changed()

    def recreate(self, name: str, count: int) -> None:
        self._create(name, count)
        self.changed()

    def grow(self, name: str) -> None:
        topic = self.topics[name]
        log = self._new_log(name, topic.topic_id, len(topic.partitions))
        self.logs.append(log)
        topic.partitions.append(Partition(log, self._alive_from(log.partition)))
        self.changed()

    def by_id(self, topic_id: UUID) -> Topic | None:
        return next((t for t in self.topics.values() if t.topic_id == topic_id), None)

    @property
    def partitions(self) -> list[Partition]:
        return [partition for topic in self.topics.values() for partition in topic.partitions]

    # Leaders ----------------------------------------------------------------------------------

    def _alive_from(self, start: int) -> int:
        count = self.setup.nodes
        alive = [(start + step) % count for step in range(count) if self.up[(start + step) % count]]
        return alive[0] if alive else NO_LEADER

    def move(
        self,
        partition: Partition,
        to: int,
        gap: float,
        *,
        lose_tail: bool,
        from_snapshot: bool = False,
    ) -> None:
        """No leader for ``gap`` seconds, then ``to``, or another broker that is up.

        ``from_snapshot``: the new leader knows only the last batch of each producer.
        """
        partition.leader = NO_LEADER
        if from_snapshot:
            partition.log.load_snapshot()
        if lose_tail:
            partition.log.truncate(partition.log.committed)
        self.changed()
        self._events.after(gap, lambda: self._elect(partition, to))

    def _elect(self, partition: Partition, wanted: int) -> None:
        if partition.leader == NO_LEADER:
            partition.leader = self._alive_from(wanted)
            partition.epoch += 1
            partition.log.committed = partition.log.end
            self.changed()

    def elect_uncleanly(self, partition: Partition) -> None:
        """An empty replica was leader for a moment; now the former leader is again."""
        partition.log.lose_everything(self._events.now)
        partition.log.fragile = False
        partition.epoch += 2
        self.changed()

    def went_down(self, node_id: int, gap: float, *, lose_tail: bool) -> None:
        self.up[node_id] = False
        for partition in self.partitions:
            if partition.leader == node_id:
                self.move(partition, node_id, gap, lose_tail=lose_tail)
        self.changed()

    def came_up(self, node_id: int, *, from_snapshot: bool) -> None:
        self.up[node_id] = True
        for partition in self.partitions:
            if partition.leader == NO_LEADER:
                if from_snapshot:
                    partition.log.load_snapshot()
                self._elect(partition, node_id)
        self.changed()

    # Metadata ---------------------------------------------------------------------------------

    def listen(self, notify: Callable[[View], None]) -> None:
        self._listeners.append(notify)
        notify(self.view())

    def view(self) -> View:
        brokers = tuple(a for a in self.addresses if self.up[a.node_id])
        topics = {name: self._describe(topic) for name, topic in self.topics.items()}
        return View(self.changes, brokers, topics)

    @staticmethod
    def _describe(topic: Topic) -> dict[str, Any]:
        partitions = [
            {
                "error_code": LEADER_NOT_AVAILABLE if each.leader == NO_LEADER else 0,
                "partition_index": number,
                "leader_id": each.leader,
                "leader_epoch": each.epoch,
            }
            for number, each in enumerate(topic.partitions)
        ]
        return {"name": topic.name, "topic_id": topic.topic_id, "partitions": partitions}

    def changed(self) -> None:
        """Notify every broker, each after its own delay."""
        self.changes += 1
        view = self.view()
        for notify in self._listeners:
            lag = self.setup.metadata_lag * self._rng.random()
            self._events.after(lag, lambda notify=notify: notify(view))  # type: ignore[misc]

    def answer(self, view: View, names: Sequence[str]) -> list[dict[str, Any]]:
        """The topics of a metadata response by a broker with this view."""
        found = []
        for name in names:
            topic = view.topics.get(name)
            code = self.hidden.get(name, 0) if topic is not None else UNKNOWN_TOPIC
            if topic is None or code:
                topic = {"error_code": code, "name": name}
            found.append(topic)
        return found

    def new_producer(self) -> tuple[int, int]:
        """A producer id and its first epoch, which may be near the maximum."""
        self.next_producer_id += 1
        first = self.next_producer_id == 1001
        return self.next_producer_id, self.setup.first_epoch if first else 0
