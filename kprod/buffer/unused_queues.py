"""The end of the queues of topics that went out of use."""

from __future__ import annotations

from kprod.buffer.compression import CompressionRatios
from kprod.buffer.copy_on_write_map import CopyOnWriteMap
from kprod.buffer.ready_tracker import ReadyTracker
from kprod.types import TopicPartition
from kprod_ext.partition_queue import PartitionQueue


def retire_unused(
    queues: CopyOnWriteMap, ready_tracker: ReadyTracker, ratios: CompressionRatios, topics: set[str]
) -> tuple[list[TopicPartition], set[str]]:
    """Retire the queues of ``topics``; their partitions, and the topics with a queue in use.

    Thread: the sender's only. A caller that holds a retired queue gets another one under its lock.
    """
    retired: list[TopicPartition] = []
    used: set[str] = set()
    queue: PartitionQueue
    for queue in queues.values():
        tp = queue.tp
        if tp.topic not in topics:
            continue
        if queue.retire():
            queues.discard(tp, queue)
            ready_tracker.forget(queue)
            retired.append(tp)
        else:
            used.add(tp.topic)
    if retired:
        ready_tracker.trim()
        ratios.forget({tp.topic for tp in retired})
    return retired, used
