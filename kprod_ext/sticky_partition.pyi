from typing import final

@final
class StickyPartition:
    """The partition that records without a key go to, until it has had its share. Thread-safe.

    Its share is ``batch_size`` bytes once its batch is full, and ``2 * batch_size`` in any case:
    switching while a batch is open would cut every batch short (``BuiltInPartitioner``, KIP-794).
    ``spent`` turns True then, and stays so. Raises ValueError for a negative partition or a batch
    size below 1.
    """

    def __new__(cls, partition: int, batch_size: int) -> StickyPartition: ...
    @property
    def partition(self) -> int: ...
    @property
    def batch_size(self) -> int: ...
    @property
    def spent(self) -> bool: ...
    def add(self, nbytes: int, batch_ready: bool) -> bool:
        """Count a record; returns ``spent``. ``batch_ready``: the partition's batch is full."""
