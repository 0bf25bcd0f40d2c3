from collections.abc import Callable, Mapping, Sequence
from typing import Any, final

from typing_extensions import disjoint_base

from kprod_ext.partition_queue import PartitionQueue, StickyPartition

@final
class TopicAppender:
    """Appends records of one topic to the queues of its admitted partitions. Thread-safe.

    ``partition_count`` is the topic's; ``largest`` the bytes that key and value of a record may
    have together.
    """

    def __new__(cls, partition_count: int, largest: int) -> TopicAppender: ...
    @property
    def partition_count(self) -> int: ...
    def admit(self, partition: int, queue: PartitionQueue) -> None:
        """Let records of this partition take the compiled path; of its queues the first counts.

        Raises IndexError for a partition the topic has not, TypeError for a queue of another
        accumulator than that of the queues before.
        """

    def stick(self, sticky: StickyPartition | None) -> None:
        """Send records without a key there until it is spent; None: the Python path places them."""

    def admits(self, partition: int) -> bool:
        """Whether records of this partition may take the compiled path."""

@final
class TopicAppenders:
    """The appenders of the topics that take the compiled path. Thread-safe."""

    def __new__(cls) -> TopicAppenders: ...
    def get(self, topic: str) -> TopicAppender | None:
        """The appender of a topic, None when it has none."""

    def open(self, topic: str, appender: TopicAppender) -> None:
        """Let a topic's records take the compiled path."""

    def close(self, topic: str) -> None:
        """Send a topic's records through the Python path."""

    def clear(self) -> None:
        """Send everything through the Python path."""

    def partition_counts(self) -> dict[str, int]:
        """Partitions by topic, as the appenders have them."""

@disjoint_base
class CompiledSend:
    """A producer's ``send``: compiled in the steady state, ``_send`` of the subclass otherwise."""

    @property
    def _topic_appenders(self) -> TopicAppenders: ...
    def _serialize_by(self, serialize: Callable[..., tuple[Any, Any, Any]] | None) -> None:
        """Let ``serialize(topic, key, value, headers)`` make (key, value, headers) of a record.

        None: keys and values are bytes. The compiled path takes records without headers only.
        """
    def send(
        self,
        topic: str,
        value: Any = None,
        key: Any = None,
        headers: Mapping[str, bytes | None] | Sequence[tuple[str, bytes | None]] | None = None,
        partition: int | None = None,
        timestamp_ms: int | None = None,
    ) -> Any: ...
