"""Brokers with scripted answers; kio reads and writes their messages."""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, NamedTuple, TypeAlias
from uuid import UUID

from kprod.records.record_batch import RecordBatch, read_batches
from kprod.transport.memory import ServerEnd
from kprod.types import TopicPartition
from kprod.wire.framing import FrameReader
from kprod.wire.versions import ApiKey, is_flexible
from tests.support.kio_messages import read_request, response

OFFERED = {
    ApiKey.PRODUCE: (3, 12),
    ApiKey.METADATA: (4, 12),
    ApiKey.API_VERSIONS: (0, 4),
    ApiKey.INIT_PRODUCER_ID: (0, 4),
}
UNKNOWN_TOPIC_ID = 100


class ReceivedRequest(NamedTuple):
    api: ApiKey
    version: int
    correlation_id: int
    body: Any


Answer: TypeAlias = Callable[["ScriptedBroker", ReceivedRequest], bytes | None]
"""The bytes of a whole answer; b"" for no answer, None for silence from now on.

A ConnectionError cuts the connection.
"""


def received(message: bytes) -> ReceivedRequest:
    api, version = ApiKey(int.from_bytes(message[:2], "big")), int.from_bytes(message[2:4], "big")
    header, body = read_request(api, version, len(message).to_bytes(4, "big") + message)
    return ReceivedRequest(api, version, header.correlation_id, body)


def frame(request: ReceivedRequest, **values: Any) -> bytes:
    flexible = is_flexible(request.api, request.version) and request.api is not ApiKey.API_VERSIONS
    tags = b"\x00" if flexible else b""
    body = bytes(response(request.api, request.version, **values))
    message = request.correlation_id.to_bytes(4, "big") + tags + body
    return len(message).to_bytes(4, "big") + message


def telling(**values: Any) -> Answer:
    return lambda _broker, request: frame(request, **values)


def silence(_broker: ScriptedBroker, _request: ReceivedRequest) -> None:
    """No answer, and none to later requests of the connection."""


def cut(_broker: ScriptedBroker, _request: ReceivedRequest) -> bytes:
    raise ConnectionResetError("Connection reset by peer")


def refuse(
    code: int,
    *,
    leader: tuple[int, int] = (-1, -1),
    records: Mapping[int, str | None] | None = None,
) -> Answer:
    """A Produce answer with this error code for every partition, and a leader hint.

    ``records``: the messages of invalid records by index.
    """

    def answer(broker: ScriptedBroker, request: ReceivedRequest) -> bytes:
        return broker.produce_answer(
            request, lambda tp, batches: (code, -1), leader=leader, records=records or {}
        )

    return answer


class ScriptedBroker:
    """One broker; ``next`` sets answers other than the usual ones."""

    def __init__(self, cluster: ScriptedCluster, node_id: int, host: str, port: int) -> None:
        self.cluster = cluster
        self.node_id, self.host, self.port = node_id, host, port
        self.offered = dict(OFFERED)
        self.received: list[ReceivedRequest] = []
        self.throttle_ms = 0
        self.connections = 0
        self._script: defaultdict[ApiKey, deque[Answer]] = defaultdict(deque)

    def next(self, api: ApiKey, *answers: Answer) -> None:
        """Answers to the next requests of this API, one each."""
        self._script[api].extend(answers)

    def count(self, api: ApiKey) -> int:
        return sum(request.api is api for request in self.received)

    def accept(self) -> ServerEnd:
        self.connections += 1
        return _Connection(self)

    def answer(self, request: ReceivedRequest) -> bytes | None:
        self.received.append(request)
        script = self._script[request.api]
        return script.popleft()(self, request) if script else self.usual(request)

    def usual(self, request: ReceivedRequest) -> bytes:
        if request.api is ApiKey.PRODUCE:
            return self.produce_answer(request, self.cluster.store)
        if request.api is ApiKey.METADATA:
            names = None if request.body.topics is None else [t.name for t in request.body.topics]
            return frame(request, **self.cluster.metadata(names))
        if request.api is ApiKey.API_VERSIONS:
            return frame(request, api_keys=api_keys(self.offered))
        self.cluster.producer_ids += 1
        return frame(request, producer_id=self.cluster.producer_ids)

    def produce_answer(
        self,
        request: ReceivedRequest,
        store: Callable[[TopicPartition, list[RecordBatch]], tuple[int, int]],
        *,
        leader: tuple[int, int] = (-1, -1),
        records: Mapping[int, str | None] = MappingProxyType({}),
    ) -> bytes:
        """An answer with error code and base offset of every partition from ``store``."""
        hint: dict[str, Any] = {}
        if leader != (-1, -1):
            hint["current_leader"] = {"leader_id": leader[0], "leader_epoch": leader[1]}
        errors = [
            {"batch_index": index, "batch_index_error_message": text}
            for index, text in records.items()
        ]
        topics = []
        for topic in request.body.topic_data:
            parts = []
            for part in topic.partition_data:
                tp = TopicPartition(self.cluster.name_of(topic), part.index)
                code, offset = store(tp, list(read_batches(part.records)))
                result = {"index": part.index, "error_code": code, "base_offset": offset}
                parts.append({**result, "log_start_offset": 0, "record_errors": errors, **hint})
            named = {key: getattr(topic, key, None) for key in ("name", "topic_id")}
            topics.append({**named, "partition_responses": parts})
        if request.body.acks == 0:
            return b""
        found = self.cluster.brokers.get(leader[0])  # in answers from version 10 on
        return frame(
            request,
            responses=topics,
            throttle_time=self.throttle_ms,
            node_endpoints=[found.endpoint] if found else [],
        )

    @property
    def endpoint(self) -> dict[str, Any]:
        return {"node_id": self.node_id, "host": self.host, "port": self.port}


@dataclass
class ScriptedCluster:
    """Brokers by id, the leader of every partition by topic, and what was stored."""

    topics: dict[str, list[int]] = field(default_factory=dict)
    errors: dict[str, int] = field(default_factory=dict)
    topic_ids: dict[str, UUID] = field(default_factory=dict)
    leader_epoch: int = 0
    producer_ids: int = 4000
    brokers: dict[int, ScriptedBroker] = field(default_factory=dict)
    listeners: dict[tuple[str, int], Callable[[], ServerEnd]] = field(default_factory=dict)
    log: dict[TopicPartition, list[RecordBatch]] = field(default_factory=dict)
    cluster_id: str = "scripted"

    def add(self, node_id: int, host: str | None = None, port: int = 9092) -> ScriptedBroker:
        """Add a broker that listens and is in metadata."""
        host = host or f"broker-{node_id}"
        broker = self.brokers[node_id] = ScriptedBroker(self, node_id, host, port)
        self.listeners[host, port] = broker.accept
        return broker

    def name_of(self, topic: Any) -> str:
        """The name of a topic in a Produce request, which may have only its id."""
        name: str | None = getattr(topic, "name", None)
        if name is not None:
            return name
        return next((n for n, topic_id in self.topic_ids.items() if topic_id == topic.topic_id), "")

    def values(self, topic: str, partition: int = 0) -> list[bytes | None]:
        batches = self.log.get(TopicPartition(topic, partition), [])
        return [record.value for batch in batches for record in batch.records()]

    def store(self, tp: TopicPartition, batches: list[RecordBatch]) -> tuple[int, int]:
        """Append without checks to an existing topic; error code and base offset."""
        if tp.topic not in self.topics:
            return UNKNOWN_TOPIC_ID, -1
        log = self.log.setdefault(tp, [])
        offset = sum(batch.record_count for batch in log)
        log += batches
        return 0, offset

    def metadata(self, names: list[str] | None) -> dict[str, Any]:
        """The fields of a Metadata response for these topics."""
        return {
            "brokers": [broker.endpoint for broker in self.brokers.values()],
            "cluster_id": self.cluster_id,
            "controller_id": min(self.brokers, default=-1),
            "topics": [self._topic(name) for name in names or sorted(self.topics)],
        }

    def _topic(self, name: str) -> dict[str, Any]:
        leaders = self.topics.get(name, [])
        return {
            "error_code": self.errors.get(name, 0 if leaders else 3),
            "name": name,
            "topic_id": self.topic_ids.get(name),
            "partitions": [
                {
                    "error_code": 0 if leader >= 0 else 5,
                    "partition_index": number,
                    "leader_id": leader,
                    "leader_epoch": self.leader_epoch,
                }
                for number, leader in enumerate(leaders)
            ],
        }


def api_keys(offered: Mapping[ApiKey, tuple[int, int]]) -> list[dict[str, int]]:
    return [
        {"api_key": api, "min_version": first, "max_version": last}
        for api, (first, last) in offered.items()
    ]


class _Connection:
    def __init__(self, broker: ScriptedBroker) -> None:
        self._broker = broker
        self._frames = FrameReader()
        self._silent = False  # answers come in order: none may follow a missing one

    def receive(self, data: bytes) -> bytes:
        return b"".join(self._answer(message) for message in self._frames.feed(data))

    def _answer(self, message: memoryview) -> bytes:
        answer = self._broker.answer(received(bytes(message)))
        self._silent = self._silent or answer is None
        return b"" if self._silent or answer is None else answer
