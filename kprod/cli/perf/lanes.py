"""The ways to hand records to a producer, each with a watch on when they get their outcome."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any, ClassVar

from kprod.cli.perf.workload import Chunk

Told = Callable[[object], object]
"""Called with the outcome, KprodError or not, of what is watched, in the thread for callbacks."""


class Lane(ABC):
    """One way of sending, on one producer and topic. Thread: one."""

    most: ClassVar[int]
    """Records between two looks at the clock, and so between two that are watched."""

    def __init__(self, producer: Any, topic: str) -> None:
        self._producer = producer
        self._topic = topic

    @abstractmethod
    def send(self, chunk: Chunk, told: Told) -> None:
        """Queue all records; ``told`` is called when the one that is watched has its outcome."""


class OneByOne(Lane):
    """``send`` for each record; the first of a chunk is watched."""

    most = 200

    def send(self, chunk: Chunk, told: Told) -> None:
        """See Lane."""
        send, topic = self._producer.send, self._topic
        if chunk.keys is None:
            future = send(topic, chunk.values[0])
            for value in chunk.values[1:]:
                send(topic, value)
        else:
            future = send(topic, chunk.values[0], chunk.keys[0])
            for value, key in zip(chunk.values[1:], chunk.keys[1:], strict=True):
                send(topic, value, key)
        future.add_both(told)


LANES: dict[str, type[Lane]] = {"send": OneByOne}
