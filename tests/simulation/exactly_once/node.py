"""A broker of the cluster with transactions: coordinates, and lets into partitions what may be."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from tests.simulation.events import EventQueue
from tests.simulation.exactly_once import wire
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
from tests.simulation.exactly_once.setup import TRANSACTIONAL_ID, TransactionSetup
from tests.simulation.exactly_once.wire import Question, Who
from tests.simulation.interference import Interference
from tests.simulation.model import wire as plain
from tests.simulation.model.cluster import Cluster, Partition
from tests.simulation.model.node import UNSUPPORTED_VERSION, Node
from tests.simulation.model.partition_log import HEADER, BatchFields
from tests.simulation.model.produce import NOT_LEADER
from tests.simulation.model.server_end import ServerEnd
from tests.simulation.model.wire import ProduceRequest, RequestHeader
from tests.simulation.wires import Wires

NOT_AVAILABLE, NOT_ENOUGH_REPLICAS, UNAUTHORIZED = 15, 19, 53
IMPLICIT_PRODUCE, IMPLICIT_OFFSETS = 12, 5
ABORTABLE_PRODUCE, ABORTABLE_OFFSETS = 11, 4
TRANSACTION_KIND = 1

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
            plain.INIT_PRODUCER_ID: (0, setup.identity_version),
            plain.FIND_COORDINATOR: (0, setup.find_version),
            plain.ADD_PARTITIONS: (0, setup.add_version),
            plain.ADD_OFFSETS: (0, setup.add_version),
            plain.END_TXN: (0, setup.end_version),
            plain.COMMIT_OFFSETS: (0, setup.offsets_version),
        }

    def carry_out(self, end: ServerEnd, frame: bytes, fault: Interference | None) -> None:
        api = int.from_bytes(frame[:2], "big")
        if api in wire.READERS:
            self._coordinate(end, *wire.read(frame), fault)
        elif api == plain.API_VERSIONS:
            self._tell_versions(end, plain.read_request(frame).header, fault)
        elif api == plain.PRODUCE:
            header, produce, _ = plain.read_request(frame)
            if produce is None:
                raise ValueError("a Produce request without its contents")
            self._admit(end, header, produce, fault)
        else:
            super().carry_out(end, frame, fault)

    def _tell_versions(
        self, end: ServerEnd, header: RequestHeader, fault: Interference | None
    ) -> None:
        last = self._ranges[plain.API_VERSIONS][1]
        version, code = (0, UNSUPPORTED_VERSION) if header.version > last else (header.version, 0)
        features = wire.features(self._shared.coordinator.level, self._shared.features_epoch)
        response = plain.write_api_versions(
            version, header.correlation_id, code, self._ranges, features
        )
        end.respond(response, fault)

    # Coordinators -----------------------------------------------------------------------------

    def _coordinate(
        self,
        end: ServerEnd,
        header: RequestHeader,
        question: Question,
        fault: Interference | None,
    ) -> None:
        def reply(code: int, who: Who) -> None:
            if fault is not None and fault.how == "error-after" and not code:
                code = fault.code
            end.respond(self._response(header, question, code, who), fault)

        if fault is not None and fault.how == "error-before":
            end.respond(self._response(header, question, fault.code, Who()), fault)
            return
        coordinator, here = self._shared.coordinator, self.node_id
        if header.api == plain.FIND_COORDINATOR:
            reply(*self._whereabouts(question.kind))
        elif header.api == plain.INIT_PRODUCER_ID:
            timeout = question.timeout_ms / 1000
            coordinator.initialize(here, question.who, timeout, reply)
        elif header.api == plain.ADD_PARTITIONS:
            coordinator.add(here, question.who, question.places, reply)
        elif header.api == plain.ADD_OFFSETS:
            coordinator.add(here, question.who, (OFFSETS,), reply)
        elif header.api == plain.END_TXN:
            kind = COMMIT if question.committed else ABORT
            implicit = header.version >= 5
            coordinator.end(here, question.who, kind, implicit, reply)
        else:
            self._commit_offsets(question, lambda code: reply(code, Who()))

    def _whereabouts(self, kind: int) -> tuple[int, Who]:
        """The code, and, in the place of a producer id, the broker."""
        is_transaction = kind == TRANSACTION_KIND
        node = self._shared.coordinator.node if is_transaction else self._shared.group.node
        return (0, Who(node)) if self._cluster.up[node] else (NOT_AVAILABLE, Who())

    def _response(self, header: RequestHeader, question: Question, code: int, who: Who) -> bytes:
        if header.api == plain.FIND_COORDINATOR:
            found = wire.NOBODY if code else self._cluster.addresses[who.producer_id]
            return wire.write_coordinator(header, question.key, code, found)
        if header.api == plain.INIT_PRODUCER_ID:
            return wire.write_producer_id(header, code, who)
        if header.api in (plain.ADD_PARTITIONS, plain.COMMIT_OFFSETS):
            return wire.write_places(header, question.places, code)
        return wire.write_code(header, code, who)

    # Offsets ----------------------------------------------------------------------------------

    def _commit_offsets(self, question: Question, told: Told) -> None:
        group, who = self._shared.group, question.who
        absence = self._group_absence() or group.refusal(question.generation)
        if absence:
            told(absence)
            return
        marks = group.marks[who.producer_id]

        def verified(code: int) -> None:
            if code:
                told(_for_offsets(code, question.version))
            elif group.marks[who.producer_id] != marks:
                told(BAD_STATE)
            else:
                self._store_offsets(question, told)

        if group.is_open(who):
            self._store_offsets(question, told)
        else:
            implicit = question.version >= IMPLICIT_OFFSETS
            self._ask_coordinator(who, OFFSETS, verified, implicit=implicit)

    def _store_offsets(self, question: Question, told: Told) -> None:
        moved = {
            partition: offset
            for (_, partition), offset in zip(question.places, question.offsets, strict=True)
        }
        code = self._group_absence() or self._shared.group.move(question.who, moved)
        self._events.after(self._replication, lambda: told(code or self._group_absence()))

    def _group_absence(self) -> int:
        group = self._shared.group
        if group.node != self.node_id:
            return NOT_COORDINATOR
        return 0 if group.loaded else LOADING

    # Records ----------------------------------------------------------------------------------

    def _admit(
        self,
        end: ServerEnd,
        header: RequestHeader,
        request: ProduceRequest,
        fault: Interference | None,
    ) -> None:
        """Every batch is of a transaction that the coordinator knows of, before one is stored."""
        if fault is not None and fault.how == "error-before" and fault.partition is None:
            self._produce.handle(end, header, request, fault)
            return
        if request.transactional_id != TRANSACTIONAL_ID:  # all records here are of a transaction
            places = range(len(request.partitions))
            self._produce.handle(end, header, request, fault, dict.fromkeys(places, UNAUTHORIZED))
            return
        # Who takes over meanwhile has asked nobody whether these may be stored.
        refused = dict.fromkeys(self._led_elsewhere(request), NOT_LEADER)
        waits = {
            place: found
            for place, data in enumerate(request.partitions)
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
                refused[place] = _for_records(code, header.version)
            if not left:
                self._produce.handle(end, header, request, fault, refused)

        if not left:
            self._produce.handle(end, header, request, fault)
        implicit = header.version >= IMPLICIT_PRODUCE
        for place, (partition, who, _) in list(waits.items()):
            at = partition.log.topic, partition.log.partition
            self._ask_coordinator(who, at, partial(told, place), implicit=implicit)

    def _led_elsewhere(self, request: ProduceRequest) -> list[int]:
        """Places in the request of partitions that this broker does not lead now."""
        found = (self._produce.find(data)[0] for data in request.partitions)
        return [
            place
            for place, partition in enumerate(found)
            if partition is not None and partition.leader != self.node_id
        ]

    def _verifiable(self, data: plain.PartitionData) -> tuple[Partition, Who, int] | None:
        """What is to be asked of the coordinator before the batch is stored; None for nothing."""
        partition, code = self._produce.find(data)
        if partition is None or code or partition.leader != self.node_id:
            return None
        log, fields = partition.log, BatchFields(*HEADER.unpack_from(data.records))
        if not isinstance(log, MarkedLog) or log.is_open(fields.producer_id, fields.epoch):
            return None
        return partition, Who(fields.producer_id, fields.epoch), log.marks[fields.producer_id]

    def _ask_coordinator(self, who: Who, place: wire.Place, told: Told, *, implicit: bool) -> None:
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
