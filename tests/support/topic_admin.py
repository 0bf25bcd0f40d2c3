"""Making and removing topics with confluent-kafka's admin client, on any broker."""

from __future__ import annotations

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from tests.support.committed_records import log_ends
from tests.support.waiting import await_true

SECONDS = 120.0


class TopicAdmin:
    """Every call but ``delete`` returns once the cluster has done it; what it refuses is raised."""

    def __init__(self, bootstrap_servers: str) -> None:
        self._bootstrap_servers = bootstrap_servers
        self._client = AdminClient({"bootstrap.servers": bootstrap_servers, "log_level": 2})

    def create(
        self, topic: str, partitions: int, *, replicas: int = 1, **config: str | int
    ) -> None:
        """Make a topic, and wait for its leaders; ``config`` in Kafka's names, ``_`` for ``.``.

        The controller's answer comes before a broker has learnt what it leads: a Produce request
        would be answered with UNKNOWN_TOPIC_OR_PARTITION for a moment.
        """
        named = {name.replace("_", "."): str(value) for name, value in config.items()}
        wanted = NewTopic(
            topic, num_partitions=partitions, replication_factor=replicas, config=named
        )
        futures = self._client.create_topics([wanted], operation_timeout=SECONDS)
        futures[topic].result(SECONDS)
        await_true(lambda: self._led(topic, partitions), SECONDS)

    def _led(self, topic: str, partitions: int) -> bool:
        """Whether the leader of every partition says where its log ends."""
        try:
            log_ends(self._bootstrap_servers, topic, partitions)
        except KafkaException:
            return False
        return True

    def await_brokers(self, count: int) -> None:
        """Return once that many brokers may lead partitions; AssertionError if they never do."""
        await_true(lambda: len(self._client.list_topics(timeout=SECONDS).brokers) == count, SECONDS)

    def await_in_sync(self, topic: str, replicas: int) -> None:
        """Return once every partition has that many replicas in sync; AssertionError if never."""

        def in_sync() -> bool:
            found = self._client.list_topics(topic, SECONDS).topics[topic]
            return all(len(p.isrs) == replicas for p in found.partitions.values())

        await_true(in_sync, SECONDS)

    def delete(self, topic: str) -> None:
        """Remove a topic. The brokers learn of it soon, and may store records meanwhile."""
        self._client.delete_topics([topic], operation_timeout=SECONDS)[topic].result(SECONDS)

    def await_gone(self, topic: str) -> None:
        """Return once a broker knows the topic no more, and refuses its records unread."""
        await_true(lambda: topic not in self._client.list_topics(timeout=SECONDS).topics, SECONDS)
