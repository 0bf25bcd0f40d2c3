from collections.abc import Callable, Mapping, Sequence
from typing import Any, final

from typing_extensions import disjoint_base

from kprod_ext.partition_queue import PartitionQueue, StickyPartition

@final
class TopicAppender:
    """Appends records of one topic to the queues of its admitted partitions. Thread-safe.

    ``partition_count`` is the topic's number of partitions. ``largest`` is the limit in bytes of a
    record's key and value together.
    """

    def __new__(cls, partition_count: int, largest: int) -> TopicAppender: ...
    @property
    def partition_count(self) -> int: ...
    def admit(self, partition: int, queue: PartitionQueue) -> None:
        """Let records of this partition take the compiled path; a later queue has no effect.

        Raises IndexError for a partition that the topic does not have, TypeError for a queue of
        another accumulator.
        """

    def stick(self, sticky: StickyPartition | None) -> None:
        """Let ``sticky`` choose the partition of records without a key, until its batch is full.

        None: such records are not handled here, but by the code in Python.
        """

    def admits(self, partition: int) -> bool:
        """Whether records of this partition may take the compiled path."""

@final
class TopicAppenders:
    """The appenders of the topics that take the compiled path. Thread-safe."""

    def __new__(cls) -> TopicAppenders: ...
    def get(self, topic: str) -> TopicAppender | None:
        """The appender of a topic, or None."""

    def open(self, topic: str, appender: TopicAppender) -> None:
        """Let a topic's records take the compiled path."""

    def close(self, topic: str) -> None:
        """Send a topic's records through the Python path."""

    def clear(self) -> None:
        """Send everything through the Python path."""

    def partition_counts(self) -> dict[str, int]:
        """The number of partitions of each appender, by topic."""

@disjoint_base
class CompiledSend:
    """A producer's ``send``: compiled code if possible, otherwise ``_send`` of the subclass."""

    @property
    def _topic_appenders(self) -> TopicAppenders: ...
    @property
    def _inherited(self) -> bool:
        """Whether this process was forked from the one that owns the memory and the connections."""

    def _belong_here(self) -> None:
        """This process owns the producer's state now: ``send`` may take the compiled path again."""

    def _serialize_by(self, serialize: Callable[..., tuple[Any, Any, Any]] | None) -> None:
        """Use ``serialize(topic, key, value, headers)``, which returns (key, value, headers).

        None means that keys and values are bytes. With a serializer, the compiled path takes only
        records without headers.
        """
    def send(
        self,
        topic: str,
        value: Any = None,
        key: Any = None,
        headers: Mapping[str, bytes | None] | Sequence[tuple[str, bytes | None]] | None = None,
        partition: int | None = None,
        timestamp_ms: int | None = None,
        callback: Callable[[Any, Any], object] | None = None,
    ) -> Any: ...
