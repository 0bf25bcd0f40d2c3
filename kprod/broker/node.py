"""What every handler may use: the one node there is."""

from __future__ import annotations

import uuid
from dataclasses import dataclass

from kio.schema.errors import ErrorCode

from kprod.broker.log.log_config import LogConfig
from kprod.broker.log.log_directory import NODE_ID
from kprod.broker.log.partition_log import LEADER_EPOCH, PartitionLog
from kprod.broker.messages import Message
from kprod.broker.producer_ids import ProducerIds
from kprod.broker.purgatory import Purgatory
from kprod.broker.topic import Topic
from kprod.broker.topics import Topics
from kprod.clock import Clock
from kprod.errors import BrokerError


@dataclass(frozen=True, slots=True, kw_only=True)
class Node:
    """The broker behind the APIs. Every part is thread-safe."""

    cluster_id: str
    host: str
    port: int
    topics: Topics
    producer_ids: ProducerIds
    purgatory: Purgatory
    clock: Clock
    log_config: LogConfig
    default_partitions: int
    auto_create_topics: bool

    @property
    def endpoint(self) -> Message:
        """Where clients reach this node, as most responses spell it."""
        return {"node_id": NODE_ID, "host": self.host, "port": self.port, "rack": None}

    def topic(self, name: str | None, topic_id: uuid.UUID | None) -> Topic:
        """The topic by name, or by id where a version has no names: ``BrokerError`` 3 or 100."""
        topic = self.topics.find_id(topic_id) if name is None else self.topics.find(name)
        if topic is None and name is None:
            raise BrokerError(ErrorCode.unknown_topic_id)
        if topic is None:
            raise BrokerError(ErrorCode.unknown_topic_or_partition)
        return topic

    @staticmethod
    def partition(topic: Topic, number: int, leader_epoch: int = -1) -> PartitionLog:
        """A partition's log: ``BrokerError`` 3, or 75 for a leader epoch there never was."""
        if not 0 <= number < len(topic.partitions):
            raise BrokerError(ErrorCode.unknown_topic_or_partition)
        if leader_epoch > LEADER_EPOCH:
            raise BrokerError(ErrorCode.unknown_leader_epoch)
        return topic.partitions[number]
