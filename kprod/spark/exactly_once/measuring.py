"""What a task would write, measured without writing it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from kprod.spark.arrow_columns import payload_bytes

if TYPE_CHECKING:
    from kprod.types import Header


class Offered:
    """Rows that were given to a producer, and the bytes of their keys and values."""

    def __init__(self) -> None:
        self.rows = 0
        self.bytes = 0

    def row(self, value: Any, key: Any) -> None:
        """One row."""
        self.rows += 1
        self.bytes += sum(len(data) for data in (key, value) if hasattr(data, "__len__"))

    def several(self, rows: int, nbytes: int) -> None:
        """Rows that go together."""
        self.rows += rows
        self.bytes += nbytes


class MeasuringProducer:
    """Takes what a ``TaskProducer`` takes, and counts it. Thread: one."""

    rejected = None

    def __init__(self) -> None:
        self.offered = Offered()

    def partition_count(self, topic: str) -> int:
        """As many as a topic can have: the task that writes the rows checks their partitions."""
        return 1 << 31

    def send(
        self,
        topic: str,
        value: Any = None,
        key: Any = None,
        headers: Sequence[Header] | None = None,
        partition: int | None = None,
        timestamp_ms: int | None = None,
    ) -> None:
        """One row."""
        self.offered.row(value, key)

    def send_many(self, topic: str, values: list[Any], keys: list[Any] | None) -> int:
        """A slice of rows; their bytes."""
        nbytes = sum(map(len, filter(None, values)))
        if keys is not None:
            nbytes += sum(map(len, filter(None, keys)))
        self.offered.several(len(values), nbytes)
        return nbytes

    def send_batch(self, topic: str, batch: Any, columns: dict[str, str | None]) -> None:
        """The rows of a ``pyarrow.RecordBatch``."""
        self.offered.several(batch.num_rows, payload_bytes(batch, columns))
