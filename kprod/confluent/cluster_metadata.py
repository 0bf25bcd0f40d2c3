"""The result of list_topics, with the classes of confluent_kafka.admin and their texts."""

from __future__ import annotations

from dataclasses import dataclass, field

from kprod.confluent.errors import KafkaError
from kprod.wire.control import MetadataReply, TopicReply


@dataclass(eq=False, repr=False)
class BrokerMetadata:
    """A broker."""

    id: int = -1
    host: str | None = None
    port: int = -1

    def __repr__(self) -> str:
        return f"BrokerMetadata({self.id}, {self.host}:{self.port})"

    def __str__(self) -> str:
        return f"{self.host}:{self.port}/{self.id}"


@dataclass(eq=False, repr=False)
class PartitionMetadata:
    """A partition. ``leader`` is -1 if there is none. ``isrs`` are the in-sync replicas."""

    id: int = -1
    leader: int = -1
    replicas: list[int] = field(default_factory=list)
    isrs: list[int] = field(default_factory=list)
    error: KafkaError | None = None

    def __repr__(self) -> str:
        return f"PartitionMetadata({self.id}{_shown(self.error)})"

    def __str__(self) -> str:
        return str(self.id)


@dataclass(eq=False, repr=False)
class TopicMetadata:
    """A topic and its partitions by number."""

    topic: str | None = None
    partitions: dict[int, PartitionMetadata] = field(default_factory=dict)
    error: KafkaError | None = None

    def __repr__(self) -> str:
        count = f"{len(self.partitions)} partitions"
        return f"TopicMetadata({self.topic}, {count}{_shown(self.error)})"

    def __str__(self) -> str:
        return str(self.topic)


@dataclass(eq=False, repr=False)
class ClusterMetadata:
    """Brokers by id and topics by name."""

    cluster_id: str | None = None
    controller_id: int = -1
    brokers: dict[int, BrokerMetadata] = field(default_factory=dict)
    topics: dict[str, TopicMetadata] = field(default_factory=dict)
    orig_broker_id: int = -1
    orig_broker_name: str | None = None

    def __repr__(self) -> str:
        return f"ClusterMetadata({self.cluster_id})"

    def __str__(self) -> str:
        return str(self.cluster_id)


def cluster_metadata(reply: MetadataReply) -> ClusterMetadata:
    """Convert a broker's metadata response."""
    brokers = {b.node_id: BrokerMetadata(b.node_id, b.host, b.port) for b in reply.brokers}
    topics = {topic.name: _topic(topic) for topic in reply.topics if topic.name}
    return ClusterMetadata(reply.cluster_id, reply.controller_id, brokers, topics)


def _topic(reply: TopicReply) -> TopicMetadata:
    partitions = {
        p.partition: PartitionMetadata(
            p.partition, p.leader_id, list(p.replicas), list(p.in_sync), _error(p.error_code)
        )
        for p in reply.partitions
    }
    return TopicMetadata(reply.name, partitions, _error(reply.error_code))


def _error(code: int) -> KafkaError | None:
    return KafkaError(code) if code else None


def _shown(error: KafkaError | None) -> str:
    return "" if error is None else f", {error}"
