"""Judges what the client writes, as it writes it: invariants I8, I12, I13 and I16."""

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
from tests.support.scripted_cluster import Heard

Place: TypeAlias = tuple[str, UUID | None, int]
"""Topic, topic id when the request named it so, partition."""

UNKNOWN_SERVER_ERROR = -1
DUPLICATE = 46
TOO_LARGE = (10, 18)
SEQUENCE_CODES = (45, DUPLICATE, 47, 59)
SILENT_FROM = {PRODUCE: 6, METADATA: 6, HANDSHAKE: 2, IDENTITY: 1}
"""Before that version the answer was held back, and a client need not be silent (KIP-219)."""
DIALS_PER_SECOND = 60  # two links per address, each at most every 40 ms


@dataclass(slots=True)
class Request:
    """One unanswered request; ``batches`` are those of a Produce request."""

    heard: Heard
    batches: list[tuple[Place, BatchHeader]]

    @property
    def may_silence(self) -> bool:
        return self.heard.version >= SILENT_FROM[self.heard.api.name]


REMEMBERED_ANSWERS = 100
"""More than a client leaves unread."""


@dataclass(slots=True)
class Line:
    """One connection as the wire shows it; ``stray``: what comes next is not read any more."""

    unanswered: deque[Request] = field(default_factory=deque)
    throttled_at: float = 0.0
    silent_until: float = 0.0
    stray: bool = False
    answered: deque[Request] = field(default_factory=lambda: deque(maxlen=REMEMBERED_ANSWERS))


class WireWatch(Watcher):
    """Knows nothing of the client but its bytes."""

    def __init__(
        self, setup: Setup, cluster: Cluster, clock: SimClock, history: History | None = None
    ) -> None:
        self.history = history or History()
        self.produce_requests = 0
        self.dials = 0
        self._setup = setup
        self._cluster = cluster
        self._clock = clock
        self._lines: dict[SimTransport, Line] = {}
        self._sequences = SequenceWatch(setup, cluster, clock)
        self._proven: dict[Place, tuple[int, int, int]] = {}
        self._in_flight: dict[Place, int] = {}
        self._last_metadata = float("-inf")
        self._asked: set[str] = set()
        self._used: dict[str, float] = {}  # when a topic was looked up or asked for, or produced to
        self._dialled: dict[str, deque[float]] = {}

    @property
    def nothing_under_way(self) -> bool:
        """No request waits for its response."""
        return not any(line.unanswered for line in self._lines.values())

    @property
    def silent_until(self) -> float:
        """When the last broker that has throttled the client wants to hear of it again."""
        return max((line.silent_until for line in self._lines.values()), default=0.0)

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
        unanswered = self._lines.pop(transport, Line()).unanswered
        for number, request in enumerate(unanswered, start=1):
            self._off_wire(request)
            all_has_left = number < len(unanswered) or not transport.left_of_frame
            for place, fields in request.batches:
                known = self._sequences.known(_by_name(place), fields)
                known.lost = True
                known.in_doubt |= all_has_left

    def changed_on_the_way(self, transport: SimTransport) -> None:
        self.history.violated("I8", f"bytes changed while they were sent on {transport}")

    def _off_wire(self, request: Request) -> None:
        for place, _ in request.batches:
            self._in_flight[place] -= 1

    # Requests ---------------------------------------------------------------------------------

    def sent(self, transport: SimTransport, frame: bytes) -> None:
        heard = read_request(frame[4:])
        line = self._lines[transport]
        offered_at = self._clock.now if transport.offered_at is None else transport.offered_at
        if line.throttled_at <= offered_at < line.silent_until:
            self.history.violated("I16", f"a request on {transport} while it is throttled")
        sent: list[tuple[Place, BatchHeader]] = []
        if heard.api is ApiKey.PRODUCE:
            sent = [self._batch(data) for data in batches(heard)]
            self._produce(transport.node_id, sent)
            if heard.body.acks == 0:
                return
        elif heard.api is ApiKey.METADATA:
            self._metadata(set(topics_of(heard)), offered_at)
        for place, _ in sent:
            self._in_flight[place] = self._in_flight.get(place, 0) + 1
        line.unanswered.append(Request(heard, sent))
        if len(line.unanswered) > self._setup.max_in_flight:
            self.history.violated("I13", f"{len(line.unanswered)} requests unanswered")

    def _batch(self, data: PartitionData) -> tuple[Place, BatchHeader]:
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
        """The application needs ``topic``; after a long time it is as one it never had.

        A topic is used by batches that leave, not by records that fail before they are in one.
        """
        now = self._clock.now
        if self._used.setdefault(topic, now) <= self._idle_since(now):
            self._asked.discard(topic)
            self._used[topic] = now

    def _idle_since(self, now: float) -> float:
        return now - self._setup.metadata_max_idle_ms / 1000

    def _metadata(self, asked: set[str], now: float) -> None:
        """``now`` is when the socket was offered the request; it may have had no room for it."""
        least = LEAST_JITTER * self._setup.retry_backoff_ms / 1000 - 1e-6
        idle = self._idle_since(now)
        forgotten = {name for name in asked if self._used.setdefault(name, now) <= idle}
        new = (asked - self._asked) | forgotten
        if not new and now - self._last_metadata < least:
            gap = now - self._last_metadata
            self.history.violated("I16", f"metadata asked for again after {gap:.3f} s")
        self._asked |= asked
        self._last_metadata = now

    def _produce(self, node_id: int, batches: list[tuple[Place, BatchHeader]]) -> None:
        self.produce_requests += 1
        for place, fields in batches:
            self._used[place[0]] = self._clock.now
            flying = self._in_flight.get(place, 0)
            if flying >= self._setup.max_in_flight:
                self.history.violated("I13", f"{flying + 1} batches of {place} in flight")
            if fields.producer_id == NO_PRODUCER:
                if self._setup.idempotent:
                    self.history.violated("I12", f"a batch of {place} has no producer id")
                continue
            writer = node_id, fields.producer_id, fields.producer_epoch
            if flying and self._proven.get(place) != writer:
                self.history.violated(
                    "I13", f"two batches of {place} in flight before the first OK"
                )
            self._sequences.sent(_by_name(place), fields, self.history)

    # Responses --------------------------------------------------------------------------------

    def answered(self, transport: SimTransport, answer: Answer) -> None:
        line = self._lines.get(transport)
        if line is None or not line.unanswered:
            return
        request = line.unanswered.popleft()
        self._off_wire(request)
        if answer.throttle_ms and request.may_silence:
            over = self._clock.now + answer.throttle_ms / 1000
            if self._clock.now >= line.silent_until:
                line.throttled_at = self._clock.now
            line.silent_until = max(line.silent_until, over)
        expected = answer.correlation_id == request.heard.correlation_id
        read_by_client = expected and not line.stray
        codes = {(r.topic, r.topic_id, r.partition): r.code for r in answer.results}
        line.answered.append(request)
        for place, fields in request.batches:
            name = None if place[1] is not None else place[0]
            code = codes.get((name, place[1], place[2]))
            if code in (0, DUPLICATE):
                writer = fields.producer_id, fields.producer_epoch, fields.base_sequence
                self.history.promised.add((_by_name(place), *writer))
                self._proven[place] = transport.node_id, fields.producer_id, fields.producer_epoch
            self._told(_by_name(place), fields, code, read_by_client)

    def stray(self, transport: SimTransport) -> None:
        if (line := self._lines.get(transport)) is not None:
            line.stray = True

    def unread(self, transport: SimTransport, answers: int) -> None:
        line = self._lines.get(transport, Line())
        for request in list(line.answered)[-answers:]:
            for place, fields in request.batches:
                known = self._sequences.known(_by_name(place), fields)
                known.ended = known.refused = False
                known.lost = True

    def _told(
        self, tp: TopicPartition, fields: BatchHeader, code: int | None, read_by_client: bool
    ) -> None:
        """What an answer says of a batch; ``code`` is None where it leaves the batch out."""
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


def _by_name(place: Place) -> TopicPartition:
    return TopicPartition(place[0], place[2])
