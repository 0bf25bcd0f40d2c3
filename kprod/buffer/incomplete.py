"""Every batch that has no outcome yet, for flush and abort (Kafka's ``IncompleteBatches``)."""

from __future__ import annotations

import threading

from kprod.buffer.batch import ProducerBatch


class IncompleteBatches:
    """A set of batches. Thread-safe; changed once per batch, never per record."""

    def __init__(self) -> None:
        self._lock = threading.Lock()  # guards _batches
        self._batches: set[ProducerBatch] = set()

    def add(self, batch: ProducerBatch) -> None:
        """A batch got its first record."""
        with self._lock:
            self._batches.add(batch)

    def discard(self, batch: ProducerBatch) -> None:
        """A batch has ended."""
        with self._lock:
            self._batches.discard(batch)

    def copy(self) -> list[ProducerBatch]:
        """The batches without an outcome at this moment."""
        with self._lock:
            return list(self._batches)

    def __len__(self) -> int:
        return len(self._batches)
