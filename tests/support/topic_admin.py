"""Making and removing topics with confluent-kafka's admin client, on any broker."""

from __future__ import annotations

from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

SECONDS = 30.0


class TopicAdmin:
    """Every call returns once the controller has done it; what it refuses is raised."""

    def __init__(self, bootstrap_servers: str) -> None:
        self._client = AdminClient({"bootstrap.servers": bootstrap_servers, "log_level": 2})

    def create(self, topic: str, partitions: int, **config: str | int) -> None:
        """Make a topic with one replica; ``config`` in Kafka's names, with ``_`` for ``.``."""
        named = {name.replace("_", "."): str(value) for name, value in config.items()}
        wanted = NewTopic(topic, num_partitions=partitions, replication_factor=1, config=named)
        futures = self._client.create_topics([wanted], operation_timeout=SECONDS)
        futures[topic].result(SECONDS)

    def delete(self, topic: str) -> None:
        """Remove a topic."""
        self._client.delete_topics([topic], operation_timeout=SECONDS)[topic].result(SECONDS)
