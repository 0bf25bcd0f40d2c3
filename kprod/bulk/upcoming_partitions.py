"""The sticky partitions of one bulk call: the one in use, and those that come after it."""

from __future__ import annotations

from kprod.cluster.snapshot import TopicInfo
from kprod.intake.partitioner import DefaultPartitioner
from kprod_ext import StickyPartition


class UpcomingPartitions:
    """Draws partitions ahead, so that compiled code can go from one to the next. One thread.

    They are drawn as ``DefaultPartitioner`` draws, only earlier; those that are not used are
    dropped. The partitioner knows which one is in use, as other calls share it.
    """

    def __init__(self, partitioner: DefaultPartitioner, topic: str) -> None:
        self._partitioner = partitioner
        self._ahead: list[StickyPartition] = []
        self._drawn_for: TopicInfo | None = None
        # Records with keys need none: none is drawn for a topic that has only such records.
        self._needed = partitioner.sticky(topic) is not None

    def upcoming(self, topic: TopicInfo, batches: int) -> list[StickyPartition]:
        """The partition in use, and enough after it to fill so many batches. It may be spent."""
        sticky = self._partitioner.sticky(topic.name)
        some_lack_leaders = len(topic.available) < len(topic)
        lost = sticky is not None and (some_lack_leaders or sticky.partition >= len(topic))
        if lost or (sticky is not None and sticky.spent and not self._ahead):
            self._partitioner.choose(topic, None)
            sticky = self._partitioner.sticky(topic.name)
        if self._drawn_for is not topic:
            self._ahead, self._drawn_for = [], topic
        missing = batches - len(self._ahead)
        if missing > 0 and self._needed and not some_lack_leaders:
            self._ahead += self._partitioner.ahead(topic, missing)
        return [] if sticky is None else [sticky, *self._ahead]

    def advance(self, topic: TopicInfo, stickies: list[StickyPartition], share: int) -> None:
        """Of ``stickies``, which ``upcoming`` told, that number is in use now, or all are spent."""
        last = min(share, len(stickies) - 1)
        if last > 0:
            self._ahead = stickies[last + 1 :]
            self._partitioner.goes_on(topic, stickies[last])

    def choose(self, topic: TopicInfo) -> None:
        """A record needs one, and there is none with room."""
        self._needed = True
        self._partitioner.choose(topic, None)
