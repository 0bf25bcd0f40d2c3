"""What handlers get: the request, and the node with the parts of the broker."""

from __future__ import annotations

import threading
import uuid
import zlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, ParamSpec, TypeAlias

from kio.schema.errors import ErrorCode

from kprod.broker.client_metrics import ClientMetrics
from kprod.broker.faults import FaultPlan
from kprod.broker.groups.group import GroupConfig
from kprod.broker.groups.group_coordinator import GroupCoordinator
from kprod.broker.groups.offsets_topic import OFFSETS_TOPIC
from kprod.broker.log.log_config import LogConfig
from kprod.broker.log.log_directories import NODE_ID, RECOVERY_THREADS
from kprod.broker.log.partition_log import PartitionLog
from kprod.broker.network.listener import Session
from kprod.broker.protocol.messages import Message
from kprod.broker.purgatory import Purgatory, Timer
from kprod.broker.topics import Topic, Topics
from kprod.broker.transactions.transaction import TransactionConfig
from kprod.broker.transactions.transaction_coordinator import TransactionCoordinator
from kprod.broker.transactions.transaction_topic import TRANSACTION_TOPIC
from kprod.clock import Clock, SystemClock
from kprod.errors import BrokerError
from kprod.records.codecs import CorruptBatch
from kprod.types import TopicPartition

_COMPACTED: Final = {"cleanup.policy": "compact"}


@dataclass(frozen=True, kw_only=True)
class BrokerOptions:
    """The options of a broker, except the addresses of its nodes."""

    topics: Mapping[str, int] = field(default_factory=dict)
    default_partitions: int = 1
    auto_create_topics: bool = True
    log_config: LogConfig = field(default_factory=LogConfig)
    group_config: GroupConfig = field(default_factory=GroupConfig)
    transaction_config: TransactionConfig = field(default_factory=TransactionConfig)
    recovery_threads: int = RECOVERY_THREADS
    clock: Clock = field(default_factory=SystemClock)
    faults: FaultPlan = field(default_factory=FaultPlan)
    client_metrics: ClientMetrics = field(default_factory=ClientMetrics)

    def of_new_topic(self, name: str) -> tuple[int, Mapping[str, str]]:
        """Return the number of partitions and the settings of a topic that nobody has created."""
        if name == OFFSETS_TOPIC:
            return self.group_config.offsets_topic_partitions, _COMPACTED
        if name == TRANSACTION_TOPIC:
            return self.transaction_config.state_topic_partitions, _COMPACTED
        return self.default_partitions, {}


@dataclass(frozen=True, slots=True)
class Address:
    """The host and port at which clients reach one listener of a node."""

    host: str
    port: int


class ClusterState:
    """What a cluster's controller knows: running nodes, addresses, leaders. Thread-safe.

    The nodes of one process share their data. So every partition has a replica on every node, and
    the replicas on running nodes are always in sync. Any running node can become the leader without
    loss of data. By default the leaders are spread over the nodes.
    """

    def __init__(self, node_ids: Sequence[int] = (1,)) -> None:
        self._lock = threading.Lock()  # guards the rest
        self.node_ids = tuple(node_ids)  # running or not
        self._running: set[int] = set()
        self._addresses: dict[int, Mapping[str, Address]] = {}  # by listener name
        self._moved: dict[TopicPartition, int] = {}

    @property
    def running(self) -> tuple[int, ...]:
        """The ids of the running nodes."""
        return tuple(node_id for node_id in self.node_ids if node_id in self._running)

    @property
    def controller(self) -> int:
        """The id of the first running node; -1 if none is running."""
        return min(self.running, default=-1)

    def node_started(self, node_id: int, addresses: Mapping[str, Address]) -> None:
        """Record that a node has started. ``addresses`` are those of its listeners, by name."""
        with self._lock:
            self._addresses[node_id] = addresses
            self._running.add(node_id)

    def node_stopped(self, node_id: int) -> None:
        """Record that a node has stopped, so that other nodes lead its partitions."""
        with self._lock:
            self._running.discard(node_id)

    def address(self, node_id: int, listener: str) -> Address:
        """Return the address of the node's listener with this name, else of its first one."""
        found = self._addresses.get(node_id, {})
        return found.get(listener) or next(iter(found.values()), Address("", -1))

    def replicas(self, where: TopicPartition) -> tuple[int, ...]:
        """Return the ids of all nodes. The first is the partition's preferred leader."""
        ids = self.node_ids
        first = (zlib.crc32(where.topic.encode()) + where.partition) % len(ids)
        return ids[first:] + ids[:first]

    def leader(self, where: TopicPartition) -> int:
        """Return the id of a partition's leader; -1 if no node is running.

        The leader is the node from ``move_leader`` if that is running, or else the first running
        replica.
        """
        running = self.running
        moved = self._moved.get(where)
        if moved in running and moved is not None:
            return moved
        return next((node_id for node_id in self.replicas(where) if node_id in running), -1)

    def move_leader(self, where: TopicPartition, node_id: int) -> None:
        """Make a node the leader of a partition. Raises ``BrokerError`` 8 unless it is running."""
        with self._lock:
            if node_id not in self.running:
                raise BrokerError(ErrorCode.broker_not_available, f"node {node_id} does not run")
            self._moved[where] = node_id

    def forget(self, partitions: Iterable[TopicPartition]) -> None:
        """Forget to which nodes deleted partitions were moved.

        If a topic is created again with the same name, it begins with the default leaders.
        """
        with self._lock:
            for where in partitions:
                self._moved.pop(where, None)


Controller: TypeAlias = Callable[[Callable[[], None]], None]
"""Runs changes of topics soon, one after the other, in a separate thread.

A change may take seconds, and only one runs at a time. Handlers that waited for their turn could
not answer other clients meanwhile (Kafka: the event queue of QuorumController).
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Node:
    """One node. Its parts are thread-safe, and the nodes of a process share most of them."""

    cluster_id: str
    topics: Topics
    purgatory: Purgatory
    groups: GroupCoordinator
    transactions: TransactionCoordinator
    timer: Timer
    controller: Controller
    options: BrokerOptions = field(default_factory=BrokerOptions)
    node_id: int = NODE_ID
    state: ClusterState = field(default_factory=ClusterState)

    def endpoints(self, session: Session) -> list[Message]:
        """Return the addresses of the running nodes, as fields of a response in this session."""
        return [self.endpoint(node_id, session) for node_id in self.state.running]

    def endpoint(self, node_id: int, session: Session) -> Message:
        """Return the address of one node, as fields of a response in this session."""
        address = self.state.address(node_id, session.listener.name)
        return {"node_id": node_id, "host": address.host, "port": address.port, "rack": None}

    def topic(self, name: str | None, topic_id: uuid.UUID | None) -> Topic:
        """Find a topic by name, or by id if the name is None.

        Raises ``BrokerError`` 3 for an unknown name, 100 for an unknown id.
        """
        topic = self.topics.find_id(topic_id) if name is None else self.topics.find(name)
        if topic is None and name is None:
            raise BrokerError(ErrorCode.unknown_topic_id)
        if topic is None:
            raise BrokerError(ErrorCode.unknown_topic_or_partition)
        return topic

    def has_partition(self, where: TopicPartition) -> bool:
        """Whether the partition exists. Any node may lead it."""
        topic = self.topics.find(where.topic)
        return topic is not None and 0 <= where.partition < len(topic.partitions)

    def partition(self, topic: Topic, number: int, leader_epoch: int = -1) -> PartitionLog:
        """Return the log of a partition that this node leads.

        Raises ``BrokerError`` 3 if there is no such partition, 56 if its disk has failed, and 6 if
        another node leads it. If the client knows a ``leader_epoch``, also raises 74 if that is
        older than the current one, and 75 if it is newer.
        """
        if not 0 <= number < len(topic.partitions):
            raise BrokerError(ErrorCode.unknown_topic_or_partition)
        log = topic.partitions[number]
        if log.offline:
            raise BrokerError(ErrorCode.kafka_storage_error, f"{log.where} is offline")
        leader = self.state.leader(log.where)
        if leader != self.node_id:
            raise BrokerError(ErrorCode.not_leader_or_follower, f"{log.where}: it is node {leader}")
        if leader_epoch > log.leader_epoch:
            raise BrokerError(ErrorCode.unknown_leader_epoch)
        if -1 < leader_epoch < log.leader_epoch:
            raise BrokerError(ErrorCode.fenced_leader_epoch)
        return log

    def coordinator(self, group_id: str) -> int:
        """Return the id of the node that coordinates a group.

        That is the leader of the group's partition of the offsets topic.
        """
        return self.state.leader(TopicPartition(OFFSETS_TOPIC, self.groups.partition_of(group_id)))

    def check_coordinates(self, group_id: str) -> None:
        """Raise ``BrokerError`` 16 unless this node coordinates the group."""
        if self.coordinator(group_id) != self.node_id:
            raise BrokerError(ErrorCode.not_coordinator)

    def transaction_coordinator(self, transactional_id: str) -> int:
        """Return the id of the node that coordinates a transactional id.

        That is the leader of the id's partition of the topic ``__transaction_state``.
        """
        number = self.transactions.partition_of(transactional_id)
        return self.state.leader(TopicPartition(TRANSACTION_TOPIC, number))

    def check_coordinates_transaction(self, transactional_id: str) -> None:
        """Raise ``BrokerError`` 16 unless this node coordinates the transactional id."""
        if self.transaction_coordinator(transactional_id) != self.node_id:
            raise BrokerError(ErrorCode.not_coordinator)


@dataclass(frozen=True, slots=True)
class Call:
    """A parsed request.

    ``body`` is an object of the package kio. Its fields depend on ``version``.
    """

    version: int
    client_id: str | None
    body: Any
    session: Session = field(default_factory=Session)


Give: TypeAlias = Callable[[Message | Exception], None]
"""Takes a late answer."""


@dataclass(frozen=True, slots=True)
class Later:
    """An answer that must wait, for example for data (fetch) or for other members (join).

    ``begin`` is called once, with a function as argument. That function must be called with the
    answer exactly once, by any thread, either before ``begin`` returns or later. If it is called
    with an exception instead, the connection is closed.
    """

    begin: Callable[[Give], None]


Handler: TypeAlias = Callable[[Call, Node], Message | Later | None]
"""Answers a request; None sends nothing. Raises ``HangUp`` to close the connection, or
``BrokerError`` for an answer with only this error code."""


def by_topic(
    topics: Iterable[Any],
    answer: Callable[[str, Any], Message],
    name: str = "name",
) -> list[Message]:
    """Call ``answer`` for each partition in a request; return the answers, grouped by topic.

    ``name`` is the field with a topic's name, both in the request and in the response.
    """
    return [
        {
            name: getattr(topic, name),
            "partitions": [answer(getattr(topic, name), part) for part in topic.partitions],
        }
        for topic in topics
    ]


_P = ParamSpec("_P")


def or_error(
    fields: Message, answer: Callable[_P, Message], *args: _P.args, **kwargs: _P.kwargs
) -> Message:
    """Return ``fields``, and either the fields that ``answer`` returns or those of its error.

    The errors are ``BrokerError`` and ``CorruptBatch``.
    """
    try:
        return {**fields, **answer(*args, **kwargs)}
    except CorruptBatch as error:
        code, text = int(ErrorCode.corrupt_message), str(error)
    except BrokerError as error:
        code, text = error.code, error.detail
    return {**fields, "error_code": code, "error_message": text or None}


def one_by_one(handler: Callable[[Call, Node], Message]) -> Handler:
    """Wrap a handler that changes topics, so that the controller's thread runs it.

    That thread runs one request at a time.
    """

    def handle(call: Call, node: Node) -> Later:
        def run(give: Give) -> None:
            try:
                answer: Message | Exception = handler(call, node)
            except Exception as error:
                answer = error
            give(answer)

        return Later(lambda give: node.controller(lambda: run(give)))

    return handle
