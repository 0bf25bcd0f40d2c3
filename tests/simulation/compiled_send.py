"""The compiled ``send``, without the producer around it."""

from __future__ import annotations

from typing import Any

from kprod.buffer.compiled_topics import CompiledTopics
from kprod.intake.partitioner import DefaultPartitioner
from kprod.sender.loop import Sender
from kprod.types import TopicPartition
from kprod_ext import CompiledSend, largest_payload


class SimCompiledSend(CompiledSend):
    """``send`` gives a future, or None when the record has to take the Python path."""

    def __init__(self, sender: Sender, partitioner: DefaultPartitioner, most_bytes: int) -> None:
        self._partitioner = partitioner
        self._topics = CompiledTopics(
            self._topic_appenders,
            sender.accumulator,
            sender.metadata,
            largest=largest_payload(most_bytes),
        )

    def _send(self, *_record: Any) -> None:
        """The Python path is elsewhere."""

    def admit(self, tp: TopicPartition, partitions: int) -> None:
        """``tp`` was used: the next record may take the compiled path."""
        self._topics.admit(tp, partitions, self._partitioner.sticky(tp.topic))

    def close(self) -> None:
        self._topics.close()
