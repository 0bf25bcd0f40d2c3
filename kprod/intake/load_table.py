"""Which partition a random number stands for when some have more batches queued than others."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Mapping, Sequence


class LoadTable:
    """Partitions with a weight each: the length of the longest queue + 1 - that of its own.

    The load table of Kafka's ``BuiltInPartitioner`` (KIP-794): numbers from 0 on belong to the
    partitions in order, to each as many as its weight. ``partitions`` are ascending; ``queued`` has
    the length of every queue that is not empty. Takes time and room for those queues only, however
    many partitions there are. Immutable.
    """

    __slots__ = ("_above", "_ends", "_partitions", "_places", "even", "total")

    def __init__(self, partitions: Sequence[int], queued: Mapping[int, int]) -> None:
        self._partitions = partitions
        self._places = list(_places(partitions, queued))
        sizes = [queued[partitions[place]] for place in self._places]
        self._above = max(sizes, default=0) + 1
        self._ends: list[int] = []
        passed = end = 0
        for place, size in zip(self._places, sizes, strict=True):
            end += (place - passed + 1) * self._above - size
            passed = place + 1
            self._ends.append(end)
        self.total = end + (len(partitions) - passed) * self._above
        self.even = not sizes or (len(sizes) == len(partitions) and min(sizes) == max(sizes))

    def partition(self, number: int) -> int:
        """The partition that ``number``, from 0 to ``total`` - 1, falls on."""
        index = bisect_right(self._ends, number)
        start, place = (self._ends[index - 1], self._places[index - 1] + 1) if index else (0, 0)
        place += (number - start) // self._above  # so far between two queues; at most the next one
        if index < len(self._places):
            place = min(place, self._places[index])
        return self._partitions[place]


def _places(partitions: Sequence[int], queued: Mapping[int, int]) -> Iterator[int]:
    """Where the partitions with a queue stand in ``partitions``, if they do."""
    for partition in sorted(queued):
        place = bisect_left(partitions, partition)
        if place < len(partitions) and partitions[place] == partition:
            yield place
