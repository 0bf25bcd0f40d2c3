"""The ways to hand records to a producer, each with a watch on when they get their outcome."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, ClassVar

from kprod.cli.perf.workload import Chunk, Workload

if TYPE_CHECKING:
    from kprod.producer import KafkaProducer

Told = Callable[[object], object]
"""Called with the outcome, KprodError or not, of what is watched, in the thread for callbacks."""


class SendingCall(ABC):
    """One way of sending the records of a workload with one producer. Thread: one.

    The first record of a chunk is watched. It goes by ``send``, whatever sends the others: then its
    latency means the same everywhere, and it waits for what is sent with it all the same.
    """

    most: ClassVar[int]
    """Records between two looks at the clock, and so between two that are watched."""

    def __init__(self, producer: KafkaProducer, workload: Workload) -> None:
        self._producer = producer
        self._topic = workload.topic

    def send(self, chunk: Chunk, told: Told) -> None:
        """Queue all records; ``told`` is called when the one that is watched has its outcome."""
        key = None if chunk.keys is None else chunk.keys[0]
        self._producer.send(self._topic, chunk.values[0], key).add_both(told)
        if len(chunk.values) > 1:
            self._send_rest(chunk)

    @abstractmethod
    def _send_rest(self, chunk: Chunk) -> None:
        """Queue all records but the first; there is one at least."""


class OneByOne(SendingCall):
    """``send`` for each record."""

    most = 200

    def _send_rest(self, chunk: Chunk) -> None:
        send, topic = self._producer.send, self._topic
        if chunk.keys is None:
            for value in chunk.values[1:]:
                send(topic, value)
        else:
            for value, key in zip(chunk.values[1:], chunk.keys[1:], strict=True):
                send(topic, value, key)


class ManyAtOnce(SendingCall):
    """``send_many`` with lists."""

    most = 5_000

    def _send_rest(self, chunk: Chunk) -> None:
        keys = None if chunk.keys is None else chunk.keys[1:]
        self._producer.send_many(self._topic, chunk.values[1:], keys=keys)


class Columns(SendingCall):
    """``send_arrow`` with record batches, which are slices of columns that are made beforehand."""

    most = 5_000

    def __init__(self, producer: KafkaProducer, workload: Workload) -> None:
        super().__init__(producer, workload)
        self._values = _column(workload.values, self.most)
        self._distinct_values = len(workload.values)
        self._keys = _column(workload.distinct_keys(), self.most) if workload.keys else None
        self._distinct_keys = workload.keys

    def _send_rest(self, chunk: Chunk) -> None:
        from pyarrow import RecordBatch

        start, count = chunk.start + 1, len(chunk.values) - 1
        columns = {"value": self._values.slice(start % self._distinct_values, count)}
        if self._keys is not None:
            columns["key"] = self._keys.slice(start % self._distinct_keys, count)
        rows = RecordBatch.from_pydict(columns)
        self._producer.send_arrow(
            self._topic, rows, value="value", key=None if self._keys is None else "key"
        )


def _column(items: Sequence[bytes], most: int) -> Any:
    """The items in an Arrow array, and from the first again, so that ``most`` follow each."""
    import pyarrow

    rounds = 1 + -(-most // len(items))
    return pyarrow.array((list(items) * rounds)[: len(items) + most], pyarrow.binary())


CALLS: dict[str, type[SendingCall]] = {
    "send": OneByOne,
    "send_many": ManyAtOnce,
    "send_arrow": Columns,
}
