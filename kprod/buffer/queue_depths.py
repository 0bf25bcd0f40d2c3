"""How many batches wait for each partition, as the sender last saw it."""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping

from kprod_ext.partition_queue import PartitionQueue


class QueueDepths:
    """Counts by topic and partition; what was told once never changes. Thread: the sender's only.

    A topic is told of from the first look after it became one of ``measured`` at which some queue
    of it had changed.
    """

    __slots__ = ("_changed", "_known", "_told")

    def __init__(self) -> None:
        self._known: dict[str, dict[int, int]] = {}
        self._changed: dict[str, None] = {}
        self._told: Mapping[str, Mapping[int, int]] = {}

    def see(self, queue: PartitionQueue) -> None:
        """Count the batches of ``queue``, one or more."""
        topic, partition = queue.tp
        depths = self._known.get(topic)
        if depths is None:
            depths = self._known[topic] = {}
        depth = queue.depth
        if depths.get(partition) != depth:
            depths[partition] = depth
            self._changed[topic] = None

    def forget(self, queue: PartitionQueue) -> None:
        """``queue`` has no batches, or none that could be sent."""
        topic, partition = queue.tp
        depths = self._known.get(topic)
        if depths is not None and depths.pop(partition, None) is not None:
            self._changed[topic] = None

    def forget_topic(self, topic: str) -> None:
        """No queue of ``topic`` has batches: keep no place to count them."""
        if not self._known.get(topic, True):
            del self._known[topic]

    def trim(self) -> None:
        """Give back the room of topics that were forgotten, which a dict keeps."""
        self._known = dict(self._known)

    def of(self, measured: Container[str]) -> Mapping[str, Mapping[int, int]]:
        """Batches by topic and partition; empty queues and topics are not named.

        The same object as before when nothing has changed.
        """
        if self._changed:
            changed = [
                topic
                for topic in self._changed
                if topic in measured and (self._known.get(topic) or None) != self._told.get(topic)
            ]
            if changed:
                self._told = self._told_anew(changed)
            self._changed.clear()
        return self._told

    def _told_anew(self, changed: Iterable[str]) -> Mapping[str, Mapping[int, int]]:
        told = dict(self._told)
        for topic in changed:
            depths = self._known.get(topic)
            if depths:
                told[topic] = dict(depths)
            else:
                told.pop(topic, None)
        return told
