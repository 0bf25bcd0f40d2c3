from typing import final

from kprod_ext.records_builder import MemoryRecordsBuilder

@final
class SealedBatch:
    """The whole of a closed batch, read-only; empty when it has no record.

    Its checksum is written when a view of it is taken, or by ``send_buffers``. Lends the builder's
    buffer: while it or a view of it lives, the memory is not reused. Raises RuntimeError before
    ``close``, BufferError once the buffer was given back. One thread at a time. A view of a batch
    that has grown into several chunks is one of a copy; ``pieces`` are the bytes where they are.
    """

    def __new__(cls, builder: MemoryRecordsBuilder) -> SealedBatch: ...
    def __len__(self) -> int: ...
    @property
    def size(self) -> int:
        """Bytes, as ``len``."""
    def pieces(self) -> list[SealedBatch | SealedPiece]:
        """What lies in a row in memory, in order: the batch itself, or a piece for each chunk."""

    def __buffer__(self, flags: int, /) -> memoryview: ...

@final
class SealedPiece:
    """A part of a batch, read-only; ``SealedBatch.pieces`` makes them. As the batch otherwise."""

    def __new__(cls, batch: SealedBatch) -> SealedPiece: ...
    def __len__(self) -> int: ...
    @property
    def size(self) -> int:
        """Bytes, as ``len``."""
    def __buffer__(self, flags: int, /) -> memoryview: ...
