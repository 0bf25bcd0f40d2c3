"""Which partition a random number stands for when some have more batches queued than others."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Mapping, Sequence
from itertools import accumulate


class LoadTable:
    """Partitions with a weight each: the length of the longest queue + 1 - that of its own.

    The load table of Kafka's ``BuiltInPartitioner`` (KIP-794). ``queued`` has the batches per
    partition; what it does not name has none queued. Immutable.
    """

    __slots__ = ("_cumulative", "_partitions")

    def __init__(self, partitions: Sequence[int], queued: Mapping[int, int]) -> None:
        sizes = [queued.get(partition, 0) for partition in partitions]
        above = max(sizes) + 1
        self._partitions = partitions
        self._cumulative = list(accumulate(above - size for size in sizes))

    @property
    def total(self) -> int:
        """The sum of all weights."""
        return self._cumulative[-1]

    def partition(self, number: int) -> int:
        """The partition that ``number``, from 0 to ``total`` - 1, falls on."""
        return self._partitions[bisect_right(self._cumulative, number)]
