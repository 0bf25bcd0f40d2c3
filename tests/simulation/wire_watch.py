"""Judges what the client writes, as it writes it: invariants I8, I12, I13 and I16."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from typing import TypeAlias
from uuid import UUID

from kprod.types import TopicPartition
from tests.simulation.clock import SimClock
from tests.simulation.history import History
from tests.simulation.model import wire
from tests.simulation.model.cluster import Cluster
from tests.simulation.model.partition_log import HEADER, NO_PRODUCER, SEQUENCES, BatchFields
from tests.simulation.setup import Setup
from tests.simulation.transport import SimTransport
from tests.simulation.wires import Answer

Place: TypeAlias = tuple[str, UUID | None, int]
"""Topic, topic id when the request named it so, partition."""

DUPLICATE = 46
TOO_LARGE = (10, 18)
LEAST_JITTER = 0.8
DIALS_PER_SECOND = 60  # two links per address, each at most every 40 ms


@dataclass(slots=True)
class Sequence:
    """What was sent under one producer id and epoch to one partition."""

    expected: int = 0
    batches: dict[int, tuple[int, int]] = field(default_factory=dict)
    split: list[BatchFields] = field(default_factory=list)  # refused as too large

    def of_a_half(self, sequence: int) -> bool:
        return any(b.base_sequence <= sequence <= b.last_sequence for b in self.split)


@dataclass(slots=True)
class Request:
    """One unanswered request; ``batches`` are those of a Produce request."""

    batches: list[tuple[Place, BatchFields]]


@dataclass(slots=True)
class Line:
    """One connection as the wire shows it."""

    unanswered: deque[Request] = field(default_factory=deque)
    silent_until: float = 0.0


class WireWatch:
    """A ``Watcher`` that knows nothing of the client but its bytes."""

    def __init__(
        self, setup: Setup, cluster: Cluster, clock: SimClock, history: History | None = None
    ) -> None:
        self.history = history or History()
        self.metadata_requests = 0
        self.produce_requests = 0
        self.dials = 0
        self._setup = setup
        self._cluster = cluster
        self._clock = clock
        self._lines: dict[SimTransport, Line] = {}
        self._sequences: dict[tuple[int, int, TopicPartition], Sequence] = {}
        self._epochs: dict[tuple[int, TopicPartition], int] = {}
        self._proven: dict[Place, tuple[int, int, int]] = {}
        self._in_flight: dict[Place, int] = {}
        self._last_metadata = float("-inf")
        self._asked: set[str] = set()
        self._dialled: dict[str, deque[float]] = {}

    @property
    def nothing_under_way(self) -> bool:
        """No request waits for its response."""
        return not any(line.unanswered for line in self._lines.values())

    # Connections ------------------------------------------------------------------------------

    def dialled(self, transport: SimTransport) -> None:
        self.dials += 1
        self._lines[transport] = Line()
        times = self._dialled.setdefault(transport.name, deque(maxlen=DIALS_PER_SECOND))
        now = self._clock.now
        if len(times) == DIALS_PER_SECOND and now - times[0] < 1.0:
            self.history.violated(
                "I16", f"{len(times)} connections to {transport.name} in a second"
            )
        times.append(now)

    def ended(self, transport: SimTransport) -> None:
        for request in self._lines.pop(transport, Line()).unanswered:
            self._off_wire(request)

    def changed_on_the_way(self, transport: SimTransport) -> None:
        self.history.violated("I8", f"bytes changed while they were sent on {transport}")

    def _off_wire(self, request: Request) -> None:
        for place, _ in request.batches:
            self._in_flight[place] -= 1

    # Requests ---------------------------------------------------------------------------------

    def sent(self, transport: SimTransport, frame: bytes) -> None:
        header, cursor = wire.read_header(frame[4:])
        line = self._lines[transport]
        if self._clock.now < line.silent_until:
            self.history.violated("I16", f"a request on {transport} while it is throttled")
        batches: list[tuple[Place, BatchFields]] = []
        if header.api == wire.PRODUCE:
            request = wire.read_produce(header.version, cursor)
            batches = [self._batch(data) for data in request.partitions]
            self._produce(transport.node_id, batches)
            if request.acks == 0:
                return
        elif header.api == wire.METADATA:
            self._metadata(wire.read_metadata(header.version, cursor))
        for place, _ in batches:
            self._in_flight[place] = self._in_flight.get(place, 0) + 1
        line.unanswered.append(Request(batches))
        if len(line.unanswered) > self._setup.max_in_flight:
            self.history.violated("I13", f"{len(line.unanswered)} requests unanswered")

    def _batch(self, data: wire.PartitionData) -> tuple[Place, BatchFields]:
        topic = data.topic
        if topic is None:
            logs = self._cluster.logs
            topic = next((log.topic for log in logs if log.topic_id == data.topic_id), "")
        fields = BatchFields(*HEADER.unpack_from(data.records))
        return (topic, data.topic_id, data.partition), fields

    def _metadata(self, names: list[str]) -> None:
        self.metadata_requests += 1
        now, asked = self._clock.now, set(names)
        least = LEAST_JITTER * self._setup.retry_backoff_ms / 1000 - 1e-6
        if asked <= self._asked and now - self._last_metadata < least:
            gap = now - self._last_metadata
            self.history.violated("I16", f"metadata asked for again after {gap:.3f} s")
        self._asked |= asked
        self._last_metadata = now

    def _produce(self, node_id: int, batches: list[tuple[Place, BatchFields]]) -> None:
        self.produce_requests += 1
        for place, fields in batches:
            flying = self._in_flight.get(place, 0)
            if flying >= self._setup.max_in_flight:
                self.history.violated("I13", f"{flying + 1} batches of {place} in flight")
            if fields.producer_id == NO_PRODUCER:
                if self._setup.idempotent:
                    self.history.violated("I12", f"a batch of {place} has no producer id")
                continue
            writer = node_id, fields.producer_id, fields.epoch
            if flying and self._proven.get(place) != writer:
                self.history.violated(
                    "I13", f"two batches of {place} in flight before the first OK"
                )
            self._sequence(place, fields)

    def _sequence(self, place: Place, fields: BatchFields) -> None:
        tp = TopicPartition(place[0], place[2])  # a topic made anew goes on where the old one was
        newest = self._epochs.get((fields.producer_id, tp), fields.epoch)
        if fields.epoch < newest:
            self.history.violated("I12", f"epoch {fields.epoch} of {tp} after {newest}")
        self._epochs[fields.producer_id, tp] = fields.epoch
        key = fields.producer_id, fields.epoch, tp
        known = self._sequences.setdefault(key, Sequence())
        before = known.batches.get(fields.base_sequence)
        if before is not None:
            if before != (fields.records, fields.crc):
                self.history.violated("I12", f"another batch with the sequence of {key}: {fields}")
            return
        if known.of_a_half(fields.base_sequence):
            known.batches[fields.base_sequence] = fields.records, fields.crc
            return
        gap_allowed = tp in self.history.failed_partitions
        if fields.base_sequence != known.expected and not gap_allowed:
            self.history.violated(
                "I12", f"sequence {fields.base_sequence} of {key}, expected {known.expected}"
            )
        known.batches[fields.base_sequence] = fields.records, fields.crc
        known.expected = (fields.last_sequence + 1) % SEQUENCES

    # Responses --------------------------------------------------------------------------------

    def answered(self, transport: SimTransport, answer: Answer) -> None:
        line = self._lines.get(transport)
        if line is None or not line.unanswered:
            return
        request = line.unanswered.popleft()
        self._off_wire(request)
        if answer.throttle_ms:
            line.silent_until = self._clock.now + answer.throttle_ms / 1000
        codes = {(r.topic, r.topic_id, r.partition): r.code for r in answer.results}
        for place, fields in request.batches:
            name = None if place[1] is not None else place[0]
            code = codes.get((name, place[1], place[2]))
            if code in (0, DUPLICATE):
                self._proven[place] = transport.node_id, fields.producer_id, fields.epoch
            elif code in TOO_LARGE:
                self._too_large(place, fields)

    def _too_large(self, place: Place, fields: BatchFields) -> None:
        tp = TopicPartition(place[0], place[2])
        known = self._sequences.get((fields.producer_id, fields.epoch, tp))
        if known is not None:
            known.batches.pop(fields.base_sequence, None)
            known.split.append(fields)
