"""The topics of a cluster by requests: listed, described, made and deleted."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from kprod.broker.cluster_client import ClusterClient, check_results
from kprod.broker.protocol.api_key import ApiKey
from kprod.errors import BrokerError

_TOPIC: Final = 2  # org.apache.kafka.common.config.ConfigResource.Type
_OF_TOPIC: Final = 1  # DescribeConfigsResponse.ConfigSource.TOPIC_CONFIG


class PartitionPlace(NamedTuple):
    """Where a partition is: ids of nodes; ``leader`` -1 while it has none."""

    number: int
    leader: int
    replicas: tuple[int, ...]
    in_sync: tuple[int, ...]


class TopicDescription(NamedTuple):
    """``partitions`` in order; ``options`` that were set for this topic, by Kafka's names."""

    name: str
    internal: bool
    partitions: tuple[PartitionPlace, ...]
    options: Mapping[str, str]


class ClusterTopics:
    """Each call raises BrokerError for what the cluster refuses, and as ``ClusterClient`` does."""

    def __init__(self, cluster: ClusterClient, timeout: float) -> None:
        self._cluster = cluster
        self._timeout = timeout

    def all(self) -> list[TopicDescription]:
        """Every topic the client may see, by name, without options."""
        found = self._cluster.described_topics(None)
        usable = (_described(topic, {}) for topic in found if not topic.error_code)
        return sorted(usable, key=lambda topic: topic.name)

    def described(self, name: str) -> TopicDescription:
        """One topic."""
        (found,) = self._cluster.described_topics([name])
        if found.error_code:
            raise BrokerError(found.error_code, f"topic {name!r}")
        return _described(found, self._options(name))

    def _options(self, name: str) -> dict[str, str]:
        wanted = {"resource_type": _TOPIC, "resource_name": name, "configuration_keys": None}
        answer = self._cluster.controller().call(ApiKey.DESCRIBE_CONFIGS, {"resources": [wanted]})
        (result,) = answer.results
        check_results([result], name)
        own = (each for each in result.configs if each.config_source == _OF_TOPIC)
        return {each.name: "***" if each.is_sensitive else each.value or "" for each in own}

    def create(
        self, name: str, partitions: int, replicas: int, options: Mapping[str, str]
    ) -> TopicDescription:
        """Make a topic, and wait until it has leaders; -1 is for the brokers' default numbers."""
        self._cluster.create_topic(name, partitions, replicas, options, self._timeout)
        self._cluster.leaders(name)
        return self.described(name)

    def delete(self, name: str) -> None:
        """Delete a topic with all its records."""
        values = {"topic_names": [name], "timeout": int(self._timeout * 1000)}
        answer = self._cluster.controller().call(ApiKey.DELETE_TOPICS, values)
        check_results(answer.responses, name)


def _described(topic: Any, options: Mapping[str, str]) -> TopicDescription:
    places = sorted(
        PartitionPlace(p.partition_index, p.leader_id, tuple(p.replica_nodes), tuple(p.isr_nodes))
        for p in topic.partitions
    )
    return TopicDescription(topic.name, bool(topic.is_internal), tuple(places), options)
