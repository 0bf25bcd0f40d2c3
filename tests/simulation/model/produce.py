"""A leader's Produce handler, following Kafka's ReplicaManager."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from tests.simulation.events import EventQueue
from tests.simulation.interference import Interference
from tests.simulation.model.cluster import Cluster, Partition
from tests.simulation.model.server_end import ServerEnd
from tests.simulation.model.wire import PartitionData, PartitionResult, batches, write_produce
from tests.simulation.setup import Setup
from tests.simulation.wires import Answer
from tests.support.scripted_cluster import ReceivedRequest

if TYPE_CHECKING:
    from tests.simulation.model.node import Node

KEEPS_OFFSET = (6, 7, 20, 56)  # replication errors: the answer has the offset
REFUSALS = (31, 53, 90)  # of the producer itself, if it is idempotent
UNKNOWN_TOPIC, NOT_LEADER, OUT_OF_ORDER, UNKNOWN_TOPIC_ID = 3, 6, 45, 100


class Stored(NamedTuple):
    """A stored batch that waits for the replicas."""

    result: PartitionResult
    partition: Partition
    leader_epoch: int
    end: int
    again: bool


class ProduceHandler:
    """Appends at once, and answers after replication."""

    def __init__(self, node: Node, setup: Setup, cluster: Cluster, events: EventQueue) -> None:
        self._node = node
        self._setup = setup
        self._cluster = cluster
        self._events = events

    def handle(self, end: ServerEnd, request: ReceivedRequest, fault: Interference | None) -> None:
        results: list[PartitionResult] = []
        stored: list[Stored] = []
        for data in batches(request):
            result = PartitionResult(data.topic, data.topic_id, data.partition)
            results.append(result)
            if fault is not None and fault.how == "error-before" and _concerns(fault, result):
                result.code = fault.code
                if self._setup.idempotent and fault.code in REFUSALS:
                    self._cluster.refused_permanently = True
            else:
                self._append(data, result, stored)
        if request.body.acks == 0:
            if any(result.code for result in results):
                end.reset()
            else:
                end.proceed()
            return

        def replicated() -> None:
            """Replication has ended, or the leader has changed (DelayedProduce)."""
            if self._node.paused:
                self._node.when_resumed(replicated)
                return
            for each in stored:
                self._confirm(*each)
            self._answer(end, request, results, fault)

        waits = request.body.acks == -1 and stored
        self._events.after(self._setup.replication if waits else 0.0, replicated)

    def _append(self, data: PartitionData, result: PartitionResult, stored: list[Stored]) -> None:
        partition, code = self._find(data)
        if partition is None or code:
            result.code = code
        elif partition.leader != self._node.node_id:
            result.code = NOT_LEADER
            if self._setup.leader_hints:
                result.hint = partition.leader, partition.epoch
        else:
            appended = partition.log.append(data.records)
            result.code, result.base_offset = appended.code, appended.base_offset
            if appended.code == OUT_OF_ORDER and partition.log.fragile:
                self._cluster.elect_uncleanly(partition)
            if not appended.code:
                log_end = partition.log.end
                stored.append(Stored(result, partition, partition.epoch, log_end, appended.again))

    def _find(self, data: PartitionData) -> tuple[Partition | None, int]:
        """The partition, or an error code."""
        if data.topic_id is not None:
            topic, missing = self._cluster.by_id(data.topic_id), UNKNOWN_TOPIC_ID
        else:
            topic, missing = self._cluster.topics.get(data.topic or ""), UNKNOWN_TOPIC
        if topic is None:
            return None, missing
        if data.partition >= len(topic.partitions):
            return None, UNKNOWN_TOPIC
        return topic.partitions[data.partition], 0

    def _confirm(
        self, result: PartitionResult, partition: Partition, epoch: int, end: int, again: bool
    ) -> None:
        if partition.epoch != epoch or partition.leader != self._node.node_id:
            result.code = NOT_LEADER  # the offset is kept, as in Kafka
            return
        partition.log.committed = max(partition.log.committed, end)
        if again and self._setup.duplicate_code:
            result.code, result.base_offset = self._setup.duplicate_code, -1
        elif self._setup.append_time:
            result.append_time = int(self._events.now * 1000)

    def _answer(
        self,
        end: ServerEnd,
        request: ReceivedRequest,
        results: list[PartitionResult],
        fault: Interference | None,
    ) -> None:
        throttle_ms = 0
        if fault is not None:
            if fault.how == "error-after":
                for result in results:
                    if not result.code and _concerns(fault, result):
                        result.code = fault.code
                        if fault.code not in KEEPS_OFFSET:
                            result.base_offset = -1
            elif fault.how == "leave-out":
                results = [result for result in results if not _concerns(fault, result)]
            elif fault.how == "extra":
                results = [*results, PartitionResult("not-requested", None, 7)]
            elif fault.how == "throttle":
                throttle_ms = int(fault.seconds * 1000)
        frame = write_produce(request, results, throttle_ms)
        end.respond(frame, fault, Answer(results, throttle_ms, request.correlation_id))


def _concerns(fault: Interference, result: PartitionResult) -> bool:
    return fault.partition is None or fault.partition == result.partition
