from collections.abc import Sequence
from typing import Any, TypeVar, final

from typing_extensions import Buffer

from kprod_ext.record_future import RecordFuture
from kprod_ext.records_builder import MemoryRecordsBuilder

_F = TypeVar("_F", bound=RecordFuture)

@final
class OpenBatch:
    """The batch of one partition that takes records, if there is one. Thread-safe.

    ``future_type`` is a subclass of RecordFuture without ``__init__``: what an append returns.
    Every append to a batch that was opened here goes through here.
    """

    def __new__(cls, future_type: type[RecordFuture]) -> OpenBatch: ...
    def open(self, builder: MemoryRecordsBuilder, delivery: Any) -> None:
        """Take records into this batch from now on; its futures refer to ``delivery``.

        Raises ValueError when the builder is open in another OpenBatch.
        """

    def shut(self) -> None:
        """Take no more records. When this returns, no append is under way."""

    def try_append(
        self,
        timestamp_ms: int,
        key: Buffer | None,
        value: Buffer | None,
        headers: Sequence[tuple[str, Buffer | None]] = (),
    ) -> tuple[Any, int, bool] | None:
        """Append a record: (its future, bytes it takes, whether the batch is full now).

        None when no batch is open, or the open one has no room and is closed for append now.
        Raises what ``MemoryRecordsBuilder.append`` raises for bad arguments.
        """

def write_first(
    future_type: type[_F],
    builder: MemoryRecordsBuilder,
    delivery: Any,
    timestamp_ms: int,
    key: Buffer | None,
    value: Buffer | None,
    headers: Sequence[tuple[str, Buffer | None]] = (),
) -> tuple[_F, int] | None:
    """Write a record into a batch that no other thread knows yet.

    Its future and the bytes it takes; None when there is no room. Raises as ``try_append``.
    """
