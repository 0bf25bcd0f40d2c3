from typing import final

from kprod_ext.records_builder import MemoryRecordsBuilder

@final
class SealedBatch:
    """The whole of a closed batch, read-only; empty when it has no record.

    Its checksum is written when a view of it is taken, or by ``send_buffers``. Lends the builder's
    buffer: while it or a view of it lives, the memory is not reused. Raises RuntimeError before
    ``close``, BufferError once the buffer was given back. One thread at a time.
    """

    def __new__(cls, builder: MemoryRecordsBuilder) -> SealedBatch: ...
    def __len__(self) -> int: ...
    @property
    def size(self) -> int:
        """Bytes, as ``len``."""
    def __buffer__(self, flags: int, /) -> memoryview: ...
