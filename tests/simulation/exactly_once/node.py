"""A broker of the cluster with transactions: coordinates, and lets into partitions what may be."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

from kprod.wire.versions import ApiKey
from tests.simulation.events import EventQueue
from tests.simulation.exactly_once.coordinator import (
    ABORTABLE,
    BAD_STATE,
    CONCURRENT,
    FENCED,
    LOADING,
    NOT_COORDINATOR,
    Coordinator,
)
from tests.simulation.exactly_once.group import INVALID_EPOCH, OFFSETS, Group
from tests.simulation.exactly_once.marked_log import ABORT, COMMIT, MarkedLog
from tests.simulation.exactly_once.setup import TRANSACTIONAL_ID, Place, TransactionSetup, Who
from tests.simulation.interference import (
    ADD_OFFSETS,
    ADD_PARTITIONS,
    COMMIT_OFFSETS,
    END,
    FIND,
    IDENTITY,
    Interference,
)
from tests.simulation.model.cluster import BrokerAddress, Cluster, Partition
from tests.simulation.model.node import Node
from tests.simulation.model.partition_log import HEADER, BatchFields
from tests.simulation.model.produce import NOT_LEADER
from tests.simulation.model.server_end import ServerEnd
from tests.simulation.model.wire import PartitionData, batches, read_request
from tests.simulation.wires import Wires
from tests.support.scripted_cluster import Heard, frame

NOT_AVAILABLE, NOT_ENOUGH_REPLICAS, UNAUTHORIZED = 15, 19, 53
IMPLICIT_PRODUCE, IMPLICIT_OFFSETS = 12, 5
ABORTABLE_PRODUCE, ABORTABLE_OFFSETS = 11, 4
TRANSACTION_KIND = 1
COORDINATED = (FIND, IDENTITY, ADD_PARTITIONS, ADD_OFFSETS, COMMIT_OFFSETS, END)
NOWHERE = BrokerAddress(-1, "", -1)

Told = Callable[[int], None]
"""Takes an error code."""


@dataclass
class Transacting:
    """What the brokers of a cluster share about transactions."""

    coordinator: Coordinator
    group: Group
    features_epoch: int = 1


class TransactionNode(Node):
    """``told``: what to answer with. A request may wait for a coordinator elsewhere."""

    def __init__(
        self,
        node_id: int,
        setup: TransactionSetup,
        cluster: Cluster,
        wires: Wires,
        shared: Transacting,
    ) -> None:
        super().__init__(node_id, setup, cluster, wires)
        self._shared = shared
        self._events: EventQueue = wires.events
        self._latency = setup.latency
        self._replication = setup.replication
        self._ranges |= {
            ApiKey.INIT_PRODUCER_ID: (0, setup.identity_version),
            ApiKey.FIND_COORDINATOR: (0, setup.find_version),
            ApiKey.ADD_PARTITIONS_TO_TXN: (0, setup.add_version),
            ApiKey.ADD_OFFSETS_TO_TXN: (0, setup.add_version),
            ApiKey.END_TXN: (0, setup.end_version),
            ApiKey.TXN_OFFSET_COMMIT: (0, setup.offsets_version),
        }

    def carry_out(self, end: ServerEnd, message: bytes, fault: Interference | None) -> None:
        request = read_request(message)
        if request.api.name in COORDINATED:
            self._coordinate(end, request, fault)
        elif request.api is ApiKey.PRODUCE:
            self._admit(end, request, fault)
        else:
            super().carry_out(end, message, fault)

    def _versions(self, request: Heard, code: int, **_features: Any) -> bytes:
        level = self._shared.coordinator.level
        name = "transaction.version"
        finalized = {"name": name, "min_version_level": level, "max_version_level": level}
        return super()._versions(
            request,
            0,
            supported_features=[{"name": name, "min_version": 0, "max_version": 2}],
            finalized_features_epoch=self._shared.features_epoch,
            finalized_features=[finalized],
        )

    # Coordinators -----------------------------------------------------------------------------

    def _coordinate(self, end: ServerEnd, request: Heard, fault: Interference | None) -> None:
        def reply(code: int, who: Who) -> None:
            if fault is not None and fault.how == "error-after" and not code:
                code = fault.code
            end.respond(self._response(request, code, who), fault)

        if fault is not None and fault.how == "error-before":
            end.respond(self._response(request, fault.code, Who()), fault)
            return
        coordinator, here, body = self._shared.coordinator, self.node_id, request.body
        who = _who(request)
        if request.api is ApiKey.FIND_COORDINATOR:
            reply(*self._whereabouts(body.key_type))
        elif request.api is ApiKey.INIT_PRODUCER_ID:
            timeout = body.transaction_timeout.total_seconds()
            coordinator.initialize(here, who, timeout, reply)
        elif request.api is ApiKey.ADD_PARTITIONS_TO_TXN:
            places = [(name, number) for name, parts in _named(request) for number in parts]
            coordinator.add(here, who, places, reply)
        elif request.api is ApiKey.ADD_OFFSETS_TO_TXN:
            coordinator.add(here, who, (OFFSETS,), reply)
        elif request.api is ApiKey.END_TXN:
            kind = COMMIT if body.committed else ABORT
            coordinator.end(here, who, kind, request.version >= 5, reply)
        else:
            self._commit_offsets(request, lambda code: reply(code, Who()))

    def _whereabouts(self, kind: int) -> tuple[int, Who]:
        """The code, and, in the place of a producer id, the broker."""
        is_transaction = kind == TRANSACTION_KIND
        node = self._shared.coordinator.node if is_transaction else self._shared.group.node
        return (0, Who(node)) if self._cluster.up[node] else (NOT_AVAILABLE, Who())

    def _response(self, request: Heard, code: int, who: Who) -> bytes:
        """``who`` the producer is from now on."""
        if request.api is ApiKey.FIND_COORDINATOR:
            found = NOWHERE if code else self._cluster.addresses[who.producer_id]
            told = {"error_code": code, "error_message": None, **found._asdict()}
            keys = getattr(request.body, "coordinator_keys", ())
            return frame(request, coordinators=[{"key": key, **told} for key in keys], **told)
        if request.api in (ApiKey.ADD_PARTITIONS_TO_TXN, ApiKey.TXN_OFFSET_COMMIT):
            topics = [_told(name, parts, code) for name, parts in _named(request)]
            return frame(request, topics=topics, results_by_topic_v3_and_below=topics)
        producer_id, epoch = Who() if code else who
        return frame(request, error_code=code, producer_id=producer_id, producer_epoch=epoch)

    # Offsets ----------------------------------------------------------------------------------

    def _commit_offsets(self, request: Heard, told: Told) -> None:
        group, who = self._shared.group, _who(request)
        absence = self._group_absence() or group.refusal(request.body.generation_id)
        if absence:
            told(absence)
            return
        marks = group.marks[who.producer_id]

        def verified(code: int) -> None:
            if code:
                told(_for_offsets(code, request.version))
            elif group.marks[who.producer_id] != marks:
                told(BAD_STATE)
            else:
                self._store_offsets(request, told)

        if group.is_open(who):
            self._store_offsets(request, told)
        else:
            implicit = request.version >= IMPLICIT_OFFSETS
            self._ask_coordinator(who, OFFSETS, verified, implicit=implicit)

    def _store_offsets(self, request: Heard, told: Told) -> None:
        moved = {
            part.partition_index: part.committed_offset
            for topic in request.body.topics
            for part in topic.partitions
        }
        code = self._group_absence() or self._shared.group.move(_who(request), moved)
        self._events.after(self._replication, lambda: told(code or self._group_absence()))

    def _group_absence(self) -> int:
        group = self._shared.group
        if group.node != self.node_id:
            return NOT_COORDINATOR
        return 0 if group.loaded else LOADING

    # Records ----------------------------------------------------------------------------------

    def _admit(self, end: ServerEnd, request: Heard, fault: Interference | None) -> None:
        """Every batch is of a transaction that the coordinator knows of, before one is stored."""
        if fault is not None and fault.how == "error-before" and fault.partition is None:
            self._produce.handle(end, request, fault)
            return
        if (
            request.body.transactional_id != TRANSACTIONAL_ID
        ):  # all records here are of a transaction
            places = range(len(batches(request)))
            self._produce.handle(end, request, fault, dict.fromkeys(places, UNAUTHORIZED))
            return
        # Who takes over meanwhile has asked nobody whether these may be stored.
        refused = dict.fromkeys(self._led_elsewhere(request), NOT_LEADER)
        waits = {
            place: found
            for place, data in enumerate(batches(request))
            if (found := self._verifiable(data)) is not None
        }
        left = set(waits)

        def told(place: int, code: int) -> None:
            left.discard(place)
            partition, who, marks = waits[place]
            log = partition.log
            if not code and isinstance(log, MarkedLog) and log.marks[who.producer_id] != marks:
                code = BAD_STATE
            if code:
                refused[place] = _for_records(code, request.version)
            if not left:
                self._produce.handle(end, request, fault, refused)

        if not left:
            self._produce.handle(end, request, fault)
        implicit = request.version >= IMPLICIT_PRODUCE
        for place, (partition, who, _) in list(waits.items()):
            at = partition.log.topic, partition.log.partition
            self._ask_coordinator(who, at, partial(told, place), implicit=implicit)

    def _led_elsewhere(self, request: Heard) -> list[int]:
        """Places in the request of partitions that this broker does not lead now."""
        found = (self._produce.find(data)[0] for data in batches(request))
        return [
            place
            for place, partition in enumerate(found)
            if partition is not None and partition.leader != self.node_id
        ]

    def _verifiable(self, data: PartitionData) -> tuple[Partition, Who, int] | None:
        """What is to be asked of the coordinator before the batch is stored; None for nothing."""
        partition, code = self._produce.find(data)
        if partition is None or code or partition.leader != self.node_id:
            return None
        log, fields = partition.log, BatchFields(*HEADER.unpack_from(data.records))
        if not isinstance(log, MarkedLog) or log.is_open(fields.producer_id, fields.epoch):
            return None
        return partition, Who(fields.producer_id, fields.epoch), log.marks[fields.producer_id]

    def _ask_coordinator(self, who: Who, place: Place, told: Told, *, implicit: bool) -> None:
        """Add the place to the transaction, or see that it was added; a way there and one back."""
        coordinator = self._shared.coordinator

        def reply(code: int, _: Who) -> None:
            self._events.after(self._latency, lambda: told(code))

        def ask() -> None:
            node = coordinator.node
            if not self._cluster.up[node]:
                reply(NOT_AVAILABLE, who)
            elif implicit:
                coordinator.add(node, who, (place,), reply)
            else:
                coordinator.verify(node, who, place, reply)

        self._events.after(self._latency, ask)


def _for_records(code: int, version: int) -> int:
    """What a leader makes of the coordinator's refusal (ReplicaManager, KafkaApis)."""
    if code == ABORTABLE and version < ABORTABLE_PRODUCE:
        return BAD_STATE
    if code == CONCURRENT and version >= IMPLICIT_PRODUCE:
        return code
    if code in (CONCURRENT, LOADING, NOT_AVAILABLE, NOT_COORDINATOR):
        return NOT_ENOUGH_REPLICAS
    return INVALID_EPOCH if code == FENCED else code


def _for_offsets(code: int, version: int) -> int:
    if code == ABORTABLE and version < ABORTABLE_OFFSETS:
        return BAD_STATE
    if code in (LOADING, NOT_AVAILABLE, NOT_COORDINATOR):
        return NOT_AVAILABLE
    return INVALID_EPOCH if code == FENCED else code


def _who(request: Heard) -> Who:
    """The producer, as it says itself."""
    before = "v3_and_below_" if request.api is ApiKey.ADD_PARTITIONS_TO_TXN else ""
    names = (f"{before}producer_id", f"{before}producer_epoch")
    return Who(*(getattr(request.body, name, -1) for name in names))


def _named(request: Heard) -> list[tuple[str, list[int]]]:
    """The partitions that a request is about, by topic."""
    if request.api is ApiKey.ADD_PARTITIONS_TO_TXN:
        return [(each.name, each.partitions) for each in request.body.v3_and_below_topics]
    return [
        (each.name, [part.partition_index for part in each.partitions])
        for each in request.body.topics
    ]


def _told(name: str, partitions: list[int], code: int) -> dict[str, Any]:
    """What an answer says of each: in one message a field has this name, in the other that."""
    parts = [
        {"partition_index": number, "error_code": code, "partition_error_code": code}
        for number in partitions
    ]
    return {"name": name, "partitions": parts, "results_by_partition": parts}
