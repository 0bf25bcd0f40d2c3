"""The end of the queues of topics that went out of use."""

from __future__ import annotations

from kprod.buffer.batch_queue import BatchQueue
from kprod.buffer.compression import CompressionRatios
from kprod.buffer.growing_map import GrowingMap
from kprod.buffer.ready_tracker import ReadyTracker
from kprod.types import TopicPartition


def retire_unused(
    queues: GrowingMap, ready_tracker: ReadyTracker, ratios: CompressionRatios, topics: set[str]
) -> tuple[list[TopicPartition], set[str]]:
    """Retire the queues of ``topics``; their partitions, and the topics with a queue in use.

    Thread: the sender's only. A caller that holds a retired queue gets another one under its lock.
    """
    retired: list[TopicPartition] = []
    used: set[str] = set()
    queue: BatchQueue
    for queue in queues.values():
        tp = queue.tp
        if tp.topic not in topics:
            continue
        if queue.retire(queues):
            ready_tracker.forget(queue)
            retired.append(tp)
        else:
            used.add(tp.topic)
    if retired:
        ready_tracker.trim()
        ratios.forget({tp.topic for tp in retired})
    return retired, used
