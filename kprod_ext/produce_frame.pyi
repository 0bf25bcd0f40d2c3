from typing import final

from kprod_ext.sealed_batch import SealedBatch, SealedPiece

@final
class PartitionBatch:
    """One finished record batch and where it goes. ``topic_id`` is needed from version 13 on."""

    def __init__(
        self,
        topic: str,
        topic_id: bytes | None,
        partition: int,
        records: memoryview | SealedBatch,
    ) -> None: ...
    @property
    def topic(self) -> str: ...
    @property
    def topic_id(self) -> bytes | None: ...
    @property
    def partition(self) -> int: ...
    @property
    def records(self) -> memoryview | SealedBatch: ...

def frame_produce(
    head: bytes,
    version: int,
    correlation_id: int,
    topics: list[tuple[bytes, list[PartitionBatch]]],
) -> list[bytes | memoryview | SealedBatch | SealedPiece]:
    """The pieces of a Produce request: ``head``, then the topics, each its encoded name or id and
    its batches.
    """
