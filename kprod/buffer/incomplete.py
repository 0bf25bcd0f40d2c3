"""Every batch that has no outcome yet, for flush and abort (Kafka's ``IncompleteBatches``)."""

from __future__ import annotations

from kprod_ext.batch import ProducerBatch


class IncompleteBatches:
    """A set of batches. Thread-safe: each operation of a set is atomic, with and without a GIL."""

    __slots__ = ("batches",)

    def __init__(self) -> None:
        self.batches: set[ProducerBatch] = set()

    def add(self, batch: ProducerBatch) -> None:
        """A batch got its first record."""
        self.batches.add(batch)

    def discard(self, batch: ProducerBatch) -> None:
        """A batch has ended."""
        self.batches.discard(batch)

    def copy(self) -> list[ProducerBatch]:
        """The batches without an outcome at this moment."""
        return list(self.batches.copy())  # a walk over the set itself could be interrupted

    def __len__(self) -> int:
        return len(self.batches)
