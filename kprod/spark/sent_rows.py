"""The rows of one send, kept until it is known that nobody has to look at them again."""

from __future__ import annotations

from typing import Any, Protocol

from kprod.errors import RecordTypeError
from kprod.spark.arrow_columns import read_batch
from kprod.spark.record_shapes import RecordShapes, SendArguments


class SentRows(Protocol):
    """What a send was made of."""

    @property
    def nbytes(self) -> int:
        """The memory they take, about."""

    def arguments(self, number: int) -> SendArguments:
        """What ``KafkaProducer.send`` would send row ``number`` with."""

    def payload_bytes(self, number: int) -> int:
        """The bytes of key and value of row ``number``."""


class BatchRows:
    """Rows of a record batch that went to one topic."""

    def __init__(self, topic: str, batch: Any) -> None:
        self.nbytes = int(batch.nbytes)
        self._batch = batch
        self._shapes = RecordShapes(topic=topic)

    def arguments(self, number: int) -> SendArguments:
        """See SentRows. Headers that cannot be read are left away."""
        row = self._batch.slice(number, 1)
        try:
            return next(read_batch(row, self._shapes))
        except RecordTypeError:
            return next(read_batch(row.drop_columns(["headers"]), self._shapes))

    def payload_bytes(self, number: int) -> int:
        """See SentRows."""
        return OneRow(self.arguments(number)).payload_bytes(0)


class OneRow:
    """One row that was sent by itself."""

    def __init__(self, arguments: SendArguments) -> None:
        self._arguments = arguments
        self.nbytes = self.payload_bytes(0)

    def arguments(self, number: int) -> SendArguments:
        """See SentRows."""
        return self._arguments

    def payload_bytes(self, number: int) -> int:
        """See SentRows."""
        _, value, key, *_ = self._arguments
        return sum(len(data) for data in (key, value) if hasattr(data, "__len__"))
