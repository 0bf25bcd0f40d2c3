"""Every partition in its turn."""

from __future__ import annotations

from collections.abc import Container, Iterator
from itertools import count

from kprod.cluster.snapshot import TopicInfo
from kprod.errors import PartitionError
from kprod.types import BytesLike


class RoundRobinPartitioner:
    """One partition after the other, per topic, whatever the key (``RoundRobinPartitioner``).

    Partitions without a leader are left out while any has one. Thread-safe. Batches fill slowly:
    records are spread over all of them.
    """

    def __init__(self) -> None:
        self._turns: dict[str, Iterator[int]] = {}

    def choose(self, topic: TopicInfo, key: BytesLike | None) -> int:
        """The next partition. Raises PartitionError for a topic without partitions."""
        turns = self._turns.get(topic.name)
        if turns is None:
            # Of two threads that come first, both go on with the counter that got in.
            turns = self._turns.setdefault(topic.name, count())
        candidates = topic.available or range(len(topic.partitions))
        if not candidates:
            raise PartitionError(f"topic {topic.name!r} has no partitions")
        return candidates[next(turns) % len(candidates)]

    def forget(self, topics: Container[str]) -> None:
        """Nothing is sent to these topics any more; used again, they begin with the first."""
        turns = list(self._turns.items())
        self._turns = {topic: each for topic, each in turns if topic not in topics}

    def appended(self, topic: TopicInfo, partition: int, nbytes: int, batch_ready: bool) -> None:
        """Nothing to remember."""
