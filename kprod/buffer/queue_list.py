"""Lists of queues that a queue leaves in constant time, wherever in the list it is."""

from __future__ import annotations

from collections.abc import Iterator

from kprod_ext.partition_queue import PartitionQueue


class QueueList:
    """Queues in the order in which they joined; a queue is in one list at most. Not thread-safe.

    ``passing``: what callers do, and a hurry, may let a queue go on from here. Elsewhere only the
    oldest batch counts, which they cannot change.
    """

    __slots__ = ("first", "last", "passing")

    def __init__(self, passing: bool = False) -> None:
        self.passing = passing
        self.first: PartitionQueue | None = None
        self.last: PartitionQueue | None = None

    def join(self, one: PartitionQueue) -> None:
        """Append ``one``, which is in no list."""
        if self.last is None:
            self.first = one
        else:
            self.last.after = one
            one.before = self.last
        self.last = one
        one.queue_list = self

    def leave(self, one: PartitionQueue) -> None:
        """Remove ``one``, which is in this list."""
        before, after = one.before, one.after
        if before is None:
            self.first = after
        else:
            before.after = after
        if after is None:
            self.last = before
        else:
            after.before = before
        one.queue_list = one.before = one.after = None

    def __iter__(self) -> Iterator[PartitionQueue]:
        """All members; the one that was yielded last may leave meanwhile."""
        one = self.first
        while one is not None:
            following = one.after
            yield one
            one = following


class NodeQueues:
    """What waits for requests to one node that ask for the same ``acks``.

    ``batches_grow_to``: how large a batch for the node may become, if that is more than
    ``batch_size``.
    """

    __slots__ = ("acks", "batches_grow_to", "due", "lingering", "node_id")

    def __init__(self, node_id: int, acks: int) -> None:
        self.node_id = node_id
        self.acks = acks
        self.batches_grow_to = 0
        self.due = QueueList()
        self.lingering = QueueList(passing=True)
