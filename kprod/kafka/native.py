"""kprod's producer, for records that a sticky partitioner of kafka-python's kind places"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

from kprod.cluster.snapshot import TopicInfo
from kprod.errors import PartitionError
from kprod.intake.partitioner import Partitioner
from kprod.kafka.partitioner import Choose, Cluster
from kprod.producer import KafkaProducer
from kprod.types import BytesLike
from kprod_ext.futures import FutureRecordMetadata

OnNewBatch: TypeAlias = Callable[[str, Cluster, int], object]


class NativeProducer(KafkaProducer):
    """Thread-safe."""

    def send_by(
        self,
        partitioner: Partitioner,
        topic: str,
        value: Any,
        headers: Any,
        timestamp_ms: int | None,
    ) -> FutureRecordMetadata:
        """As ``send`` without a key, where ``partitioner`` says, whatever the options do."""
        return self._send(topic, value, None, headers, None, timestamp_ms, partitioner)


class Turning:
    """The application's sticky partitioner, for one record without a key (KIP-480).

    As in kafka-python: where the record would begin a batch, ``on_new_batch`` is called and the
    partitioner asked once more. What they raise comes through.
    """

    def __init__(
        self, choose: Choose, on_new_batch: OnNewBatch, values: tuple[Any, Any], cluster: Cluster
    ) -> None:
        """``values``: before and after serialization."""
        self._choose = choose
        self._on_new_batch = on_new_batch
        self._values = values
        self._cluster = cluster

    def choose(self, topic: TopicInfo, key: BytesLike | None) -> int:
        """Raises PartitionError for a partition that the topic does not have."""
        chosen: Any = self._choose(topic.name, None, None, *self._values, self._cluster)
        if not (isinstance(chosen, int) and 0 <= chosen < len(topic)):
            raise PartitionError(f"the partitioner has chosen {chosen!r} for topic {topic.name!r}")
        return int(chosen)

    def on_new_batch(self, topic: TopicInfo, previous: int) -> None:
        """Let the partitioner turn to another partition."""
        self._on_new_batch(topic.name, self._cluster, previous)

    def appended(self, topic: TopicInfo, partition: int, nbytes: int, batch_ready: bool) -> None:
        """Nothing to remember."""
