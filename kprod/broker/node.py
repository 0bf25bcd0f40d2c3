"""What every handler may use: the node a request came to."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TypeAlias

from kio.schema.errors import ErrorCode

from kprod.broker.client_metrics import ClientMetrics
from kprod.broker.cluster_state import ClusterState
from kprod.broker.faults import FaultPlan
from kprod.broker.groups.group_coordinator import GroupCoordinator
from kprod.broker.groups.offsets_topic import OFFSETS_TOPIC
from kprod.broker.log.log_config import LogConfig
from kprod.broker.log.log_directory import NODE_ID
from kprod.broker.log.partition_log import PartitionLog
from kprod.broker.messages import Message
from kprod.broker.producer_ids import ProducerIds
from kprod.broker.purgatory import Purgatory
from kprod.broker.session import Session
from kprod.broker.timer import Timer
from kprod.broker.topic import Topic
from kprod.broker.topics import Topics
from kprod.broker.transactions.transaction_coordinator import TransactionCoordinator
from kprod.broker.transactions.transaction_topic import TRANSACTION_TOPIC
from kprod.clock import Clock
from kprod.errors import BrokerError
from kprod.types import TopicPartition

Controller: TypeAlias = Callable[[Callable[[], None]], None]
"""Takes what changes topics, and runs it soon, one after the other, in a thread of its own.

A change may take seconds, and no two go on at once: handlers that waited for each other would
answer nobody meanwhile (Kafka: the event queue of QuorumController).
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Node:
    """One broker behind the APIs. Every part is thread-safe, and shared by all nodes."""

    cluster_id: str
    topics: Topics
    producer_ids: ProducerIds
    purgatory: Purgatory
    clock: Clock
    log_config: LogConfig
    default_partitions: int
    auto_create_topics: bool
    groups: GroupCoordinator
    transactions: TransactionCoordinator
    timer: Timer
    controller: Controller
    faults: FaultPlan = field(default_factory=FaultPlan)
    client_metrics: ClientMetrics = field(default_factory=ClientMetrics)
    node_id: int = NODE_ID
    state: ClusterState = field(default_factory=ClusterState)

    def endpoints(self, session: Session) -> list[Message]:
        """Where the client of a session reaches the nodes that run, as responses spell it."""
        return [self.endpoint(node_id, session) for node_id in self.state.running]

    def endpoint(self, node_id: int, session: Session) -> Message:
        """Where the client reaches one node."""
        address = self.state.address(node_id, session.listener.name)
        return {"node_id": node_id, "host": address.host, "port": address.port, "rack": None}

    def topic(self, name: str | None, topic_id: uuid.UUID | None) -> Topic:
        """The topic by name, or by id where a version has no names: ``BrokerError`` 3 or 100."""
        topic = self.topics.find_id(topic_id) if name is None else self.topics.find(name)
        if topic is None and name is None:
            raise BrokerError(ErrorCode.unknown_topic_id)
        if topic is None:
            raise BrokerError(ErrorCode.unknown_topic_or_partition)
        return topic

    def has_partition(self, where: TopicPartition) -> bool:
        """Whether there is such a partition, wherever its leader is."""
        topic = self.topics.find(where.topic)
        return topic is not None and 0 <= where.partition < len(topic.partitions)

    def partition(self, topic: Topic, number: int, leader_epoch: int = -1) -> PartitionLog:
        """The log of a partition this node leads.

        ``BrokerError`` 3 for none, 56 when its disk failed, 6 when another node leads it, 74 for a
        leader epoch that is over and 75 for one there never was.
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

    def coordinator(self, key: str) -> int:
        """The node that coordinates a group: the leader of its partition of the offsets topic."""
        return self.state.leader(TopicPartition(OFFSETS_TOPIC, self.groups.partition_of(key)))

    def coordinates(self, group_id: str) -> bool:
        """Whether a group is this node's to coordinate."""
        return self.coordinator(group_id) == self.node_id

    def check_coordinates(self, group_id: str) -> None:
        """Raise ``BrokerError`` 16 unless the group is this node's to coordinate."""
        if not self.coordinates(group_id):
            raise BrokerError(ErrorCode.not_coordinator)

    def transaction_coordinator(self, transactional_id: str) -> int:
        """The node that coordinates a transactional id, by its partition of the state topic."""
        number = self.transactions.partition_of(transactional_id)
        return self.state.leader(TopicPartition(TRANSACTION_TOPIC, number))

    def coordinates_transaction(self, transactional_id: str) -> bool:
        """Whether a transactional id is this node's to coordinate."""
        return self.transaction_coordinator(transactional_id) == self.node_id

    def check_coordinates_transaction(self, transactional_id: str) -> None:
        """Raise ``BrokerError`` 16 unless it is."""
        if not self.coordinates_transaction(transactional_id):
            raise BrokerError(ErrorCode.not_coordinator)
