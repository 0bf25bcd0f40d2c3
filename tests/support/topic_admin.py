"""Creates and deletes topics with confluent-kafka's admin client."""

from __future__ import annotations

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from tests.support.committed_records import log_ends
from tests.support.waiting import await_true

SECONDS = 120.0


class TopicAdmin:
    """Every call but ``delete`` waits until the cluster is done; errors are raised."""

    def __init__(self, bootstrap_servers: str) -> None:
        self._bootstrap_servers = bootstrap_servers
        self._client = AdminClient({"bootstrap.servers": bootstrap_servers, "log_level": 2})

    def create(
        self, topic: str, partitions: int, *, replicas: int = 1, **config: str | int
    ) -> None:
        """Create a topic; ``config`` in Kafka's names, ``_`` for ``.``.

        Then wait until brokers know their partitions, which may be after the controller's answer.
        """
        named = {name.replace("_", "."): str(value) for name, value in config.items()}
        wanted = NewTopic(
            topic, num_partitions=partitions, replication_factor=replicas, config=named
        )
        futures = self._client.create_topics([wanted], operation_timeout=SECONDS)
        futures[topic].result(SECONDS)
        await_true(lambda: self._led(topic, partitions), SECONDS)

    def _led(self, topic: str, partitions: int) -> bool:
        try:
            log_ends(self._bootstrap_servers, topic, partitions)
        except KafkaException:
            return False
        return True

    def await_brokers(self, count: int) -> None:
        await_true(lambda: len(self._client.list_topics(timeout=SECONDS).brokers) == count, SECONDS)

    def await_in_sync(self, topic: str, replicas: int) -> None:
        def in_sync() -> bool:
            found = self._client.list_topics(topic, SECONDS).topics[topic]
            return all(len(p.isrs) == replicas for p in found.partitions.values())

        await_true(in_sync, SECONDS)

    def delete(self, topic: str) -> None:
        """Delete a topic. Brokers may still store records for a moment."""
        self._client.delete_topics([topic], operation_timeout=SECONDS)[topic].result(SECONDS)

    def await_gone(self, topic: str) -> None:
        """Wait until a broker no longer knows the topic, and rejects its records."""
        await_true(lambda: topic not in self._client.list_topics(timeout=SECONDS).topics, SECONDS)
