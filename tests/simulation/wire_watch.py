"""Checks the client's bytes as they are written: invariants I8, I12, I13 and I16."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from typing import TypeAlias
from uuid import UUID

from kprod.broker.log.producer_state import NO_PRODUCER
from kprod.errors import ERROR_NAMES, MAYBE_WRITTEN
from kprod.records.record_batch import BatchHeader
from kprod.types import TopicPartition
from kprod.wire.versions import ApiKey
from tests.simulation.events import SimClock
from tests.simulation.history import History
from tests.simulation.interference import HANDSHAKE, IDENTITY, METADATA, PRODUCE
from tests.simulation.model.cluster import Cluster
from tests.simulation.model.wire import PartitionData, batches, read_request, topics_of
from tests.simulation.sequence_watch import LEAST_JITTER, SequenceWatch
from tests.simulation.setup import Setup
from tests.simulation.transport import SimTransport
from tests.simulation.wires import Answer, Watcher
from tests.support.scripted_cluster import ReceivedRequest

Target: TypeAlias = tuple[str, UUID | None, int]
"""Topic, topic id if the request uses it, partition."""

UNKNOWN_SERVER_ERROR = -1
DUPLICATE = 46
TOO_LARGE = (10, 18)
SEQUENCE_CODES = (45, DUPLICATE, 47, 59)
SILENT_FROM = {PRODUCE: 6, METADATA: 6, HANDSHAKE: 2, IDENTITY: 1}
"""In older versions the broker delays the answer instead (KIP-219)."""
DIALS_PER_SECOND = 60  # two links per address, each at most every 40 ms


@dataclass(slots=True)
class Request:
    """One unanswered request; ``batches`` are those of a Produce request."""

    received: ReceivedRequest
    batches: list[tuple[Target, BatchHeader]]

    @property
    def may_silence(self) -> bool:
        return self.received.version >= SILENT_FROM[self.received.api.name]


REMEMBERED_ANSWERS = 100
"""More than a client leaves unread."""


@dataclass(slots=True)
class Connection:
    """The observed state of a connection; ``stray``: the client reads no further."""

    unanswered: deque[Request] = field(default_factory=deque)
    throttled_at: float = 0.0
    silent_until: float = 0.0
    stray: bool = False
    answered: deque[Request] = field(default_factory=lambda: deque(maxlen=REMEMBERED_ANSWERS))


class WireWatch(Watcher):
    def __init__(
        self, setup: Setup, cluster: Cluster, clock: SimClock, history: History | None = None
    ) -> None:
        self.history = history or History()
        self.produce_requests = 0
        self.dials = 0
        self._setup = setup
        self._cluster = cluster
        self._clock = clock
        self._connections: dict[SimTransport, Connection] = {}
        self._sequences = SequenceWatch(setup, cluster, clock)
        self._proven: dict[Target, tuple[int, int, int]] = {}
        self._in_flight: dict[Target, int] = {}
        self._last_metadata = float("-inf")
        self._asked: set[str] = set()
        self._used: dict[str, float] = {}  # last use of a topic: lookup, metadata, produce
        self._dialled: dict[str, deque[float]] = {}

    @property
    def nothing_in_flight(self) -> bool:
        return not any(connection.unanswered for connection in self._connections.values())

    @property
    def silent_until(self) -> float:
        """When the last throttling of the client ends."""
        return max(
            (connection.silent_until for connection in self._connections.values()), default=0.0
        )

    # Connections ------------------------------------------------------------------------------

    def dialled(self, transport: SimTransport) -> None:
        self.dials += 1
        self._connections[transport] = Connection()
        times = self._dialled.setdefault(transport.name, deque(maxlen=DIALS_PER_SECOND))
        now = self._clock.now
        if len(times) == DIALS_PER_SECOND and now - times[0] < 1.0:
            self.history.violated(
                "I16", f"{len(times)} connections to {transport.name} in a second"
            )
        times.append(now)

    def ended(self, transport: SimTransport) -> None:
        unanswered = self._connections.pop(transport, Connection()).unanswered
        for number, request in enumerate(unanswered, start=1):
            self._off_wire(request)
            all_has_left = number < len(unanswered) or not transport.left_of_frame
            for target, fields in request.batches:
                known = self._sequences.known(_by_name(target), fields)
                known.lost = True
                known.in_doubt |= all_has_left

    def changed_on_the_way(self, transport: SimTransport) -> None:
        self.history.violated("I8", f"bytes changed while they were sent on {transport}")

    def _off_wire(self, request: Request) -> None:
        for target, _ in request.batches:
            self._in_flight[target] -= 1

    # Requests ---------------------------------------------------------------------------------

    def sent(self, transport: SimTransport, frame: bytes) -> None:
        request = read_request(frame[4:])
        connection = self._connections[transport]
        offered_at = self._clock.now if transport.offered_at is None else transport.offered_at
        if connection.throttled_at <= offered_at < connection.silent_until:
            self.history.violated("I16", f"a request on {transport} while it is throttled")
        sent: list[tuple[Target, BatchHeader]] = []
        if request.api is ApiKey.PRODUCE:
            sent = [self._batch(data) for data in batches(request)]
            self._produce(transport.node_id, sent)
            if request.body.acks == 0:
                return
        elif request.api is ApiKey.METADATA:
            self._metadata(set(topics_of(request)), offered_at)
        for target, _ in sent:
            self._in_flight[target] = self._in_flight.get(target, 0) + 1
        connection.unanswered.append(Request(request, sent))
        if len(connection.unanswered) > self._setup.max_in_flight:
            self.history.violated("I13", f"{len(connection.unanswered)} requests unanswered")

    def _batch(self, data: PartitionData) -> tuple[Target, BatchHeader]:
        topic = data.topic
        if topic is None:
            logs = self._cluster.logs
            topic = next((log.topic for log in logs if log.topic_id == data.topic_id), "")
        fields = BatchHeader.parse(data.records)
        most = self._setup.growth * self._setup.batch_size
        if fields.record_count > 1 and len(data.records) > most and not self._setup.compression:
            self.history.violated("I18", f"a batch of {len(data.records)} bytes, not {most}")
        return (topic, data.topic_id, data.partition), fields

    def looked_up(self, topic: str) -> None:
        """The application needs ``topic``; an idle one counts as new.

        Only batches that leave use a topic, not records that fail before.
        """
        now = self._clock.now
        if self._used.setdefault(topic, now) <= self._idle_since(now):
            self._asked.discard(topic)
            self._used[topic] = now

    def _idle_since(self, now: float) -> float:
        return now - self._setup.metadata_max_idle_ms / 1000

    def _metadata(self, asked: set[str], now: float) -> None:
        """``now`` is when the request was first offered to the socket, which may have been full."""
        least = LEAST_JITTER * self._setup.retry_backoff_ms / 1000 - 1e-6
        idle = self._idle_since(now)
        forgotten = {name for name in asked if self._used.setdefault(name, now) <= idle}
        new = (asked - self._asked) | forgotten
        if not new and now - self._last_metadata < least:
            gap = now - self._last_metadata
            self.history.violated("I16", f"metadata requested again after {gap:.3f} s")
        self._asked |= asked
        self._last_metadata = now

    def _produce(self, node_id: int, batches: list[tuple[Target, BatchHeader]]) -> None:
        self.produce_requests += 1
        for target, fields in batches:
            self._used[target[0]] = self._clock.now
            flying = self._in_flight.get(target, 0)
            if flying >= self._setup.max_in_flight:
                self.history.violated("I13", f"{flying + 1} batches of {target} in flight")
            if fields.producer_id == NO_PRODUCER:
                if self._setup.idempotent:
                    self.history.violated("I12", f"a batch of {target} has no producer id")
                continue
            writer = node_id, fields.producer_id, fields.producer_epoch
            if flying and self._proven.get(target) != writer:
                self.history.violated(
                    "I13", f"two batches of {target} in flight before the first OK"
                )
            self._sequences.sent(_by_name(target), fields, self.history)

    # Responses --------------------------------------------------------------------------------

    def answered(self, transport: SimTransport, answer: Answer) -> None:
        connection = self._connections.get(transport)
        if connection is None or not connection.unanswered:
            return
        request = connection.unanswered.popleft()
        self._off_wire(request)
        if answer.throttle_ms and request.may_silence:
            over = self._clock.now + answer.throttle_ms / 1000
            if self._clock.now >= connection.silent_until:
                connection.throttled_at = self._clock.now
            connection.silent_until = max(connection.silent_until, over)
        expected = answer.correlation_id == request.received.correlation_id
        read_by_client = expected and not connection.stray
        codes = {(r.topic, r.topic_id, r.partition): r.code for r in answer.results}
        connection.answered.append(request)
        for target, fields in request.batches:
            name = None if target[1] is not None else target[0]
            code = codes.get((name, target[1], target[2]))
            if code in (0, DUPLICATE):
                writer = fields.producer_id, fields.producer_epoch, fields.base_sequence
                self.history.promised.add((_by_name(target), *writer))
                self._proven[target] = transport.node_id, fields.producer_id, fields.producer_epoch
            self._record_answer(_by_name(target), fields, code, read_by_client)

    def stray(self, transport: SimTransport) -> None:
        if (connection := self._connections.get(transport)) is not None:
            connection.stray = True

    def unread(self, transport: SimTransport, answers: int) -> None:
        connection = self._connections.get(transport, Connection())
        for request in list(connection.answered)[-answers:]:
            for target, fields in request.batches:
                known = self._sequences.known(_by_name(target), fields)
                known.ended = known.refused = False
                known.lost = True

    def _record_answer(
        self, tp: TopicPartition, fields: BatchHeader, code: int | None, read_by_client: bool
    ) -> None:
        """Record a batch's error code; None when the answer lacks the batch."""
        known = self._sequences.known(tp, fields)
        known.stored |= code in (0, DUPLICATE)
        if code in SEQUENCE_CODES:
            self.history.doubted.add(tp)
            if read_by_client:
                self._sequences.refused(tp, fields)
        elif code in TOO_LARGE:
            self._sequences.too_large(tp, fields)
        elif code is None or code in MAYBE_WRITTEN:
            known.in_doubt = True
        unknown = code == UNKNOWN_SERVER_ERROR or (code is not None and code not in ERROR_NAMES)
        known.ended |= unknown and read_by_client


def _by_name(target: Target) -> TopicPartition:
    return TopicPartition(target[0], target[2])
