"""Brokers that hear every request and answer as a test tells them to; kio reads and writes."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from types import MappingProxyType
from typing import Any, NamedTuple, TypeAlias
from uuid import UUID

from kio.schema.errors import ErrorCode

from kprod.records.record_batch import RecordBatch, read_batches
from kprod.transport.memory import ServerEnd
from kprod.types import TopicPartition
from kprod.wire.framing import FrameReader
from kprod.wire.versions import ApiKey, is_flexible
from tests.support.kio_messages import build, decode_request, encode, request_schema
from tests.support.kio_messages import response_schema as responses

OFFERED = {
    ApiKey.PRODUCE: (3, 12),
    ApiKey.METADATA: (4, 12),
    ApiKey.API_VERSIONS: (0, 4),
    ApiKey.INIT_PRODUCER_ID: (0, 4),
}
UNKNOWN_TOPIC_ID = 100
REQUEST_NAMES = {
    ApiKey.PRODUCE: "ProduceRequest",
    ApiKey.METADATA: "MetadataRequest",
    ApiKey.API_VERSIONS: "ApiVersionsRequest",
    ApiKey.INIT_PRODUCER_ID: "InitProducerIdRequest",
    ApiKey.GET_TELEMETRY_SUBSCRIPTIONS: "GetTelemetrySubscriptionsRequest",
    ApiKey.PUSH_TELEMETRY: "PushTelemetryRequest",
}


class Heard(NamedTuple):
    """One request as a broker read it."""

    api: ApiKey
    version: int
    correlation_id: int
    body: Any


Answer: TypeAlias = Callable[["ScriptedBroker", Heard], bytes | None]
"""The bytes of a whole answer; b"" for none yet, None for none any more on this connection.

A ConnectionError cuts the connection.
"""


def frame(heard: Heard, entity: Any) -> bytes:
    """A response with its header and size."""
    flexible = is_flexible(heard.api, heard.version) and heard.api is not ApiKey.API_VERSIONS
    tags = b"\x00" if flexible else b""
    message = heard.correlation_id.to_bytes(4, "big") + tags + bytes(encode(entity))
    return len(message).to_bytes(4, "big") + message


def silence(_broker: ScriptedBroker, _heard: Heard) -> None:
    """No answer at all, and none to what follows on the same connection."""


def cut(_broker: ScriptedBroker, _heard: Heard) -> bytes:
    """The connection breaks instead."""
    raise ConnectionResetError("Connection reset by peer")


def refuse(
    code: int,
    *,
    leader: tuple[int, int] = (-1, -1),
    records: Mapping[int, str | None] | None = None,
) -> Answer:
    """A Produce answer with an error code for every partition, and a hint at the leader.

    ``records`` are to blame, each for what is said of it.
    """

    def answer(broker: ScriptedBroker, heard: Heard) -> bytes:
        return broker.produce_answer(
            heard, lambda tp, batches: (code, -1), leader=leader, records=records or {}
        )

    return answer


class ScriptedBroker:
    """One broker; ``script`` holds what it does instead of the usual, for the next requests."""

    def __init__(self, cluster: ScriptedCluster, node_id: int, host: str, port: int) -> None:
        self.cluster = cluster
        self.node_id, self.host, self.port = node_id, host, port
        self.offered = dict(OFFERED)
        self.heard: list[Heard] = []
        self.throttle_ms = 0
        self.connections = 0
        self._script: dict[ApiKey, deque[Answer]] = {api: deque() for api in REQUEST_NAMES}

    def next(self, api: ApiKey, *answers: Answer) -> None:
        """What the next requests of this kind get, one each; then the usual again."""
        self._script[api].extend(answers)

    def count(self, api: ApiKey) -> int:
        """Requests of this kind that were heard."""
        return sum(heard.api is api for heard in self.heard)

    def accept(self) -> ServerEnd:
        """A new connection."""
        self.connections += 1
        return _Connection(self)

    def answer(self, heard: Heard) -> bytes | None:
        """The scripted answer, or the usual."""
        self.heard.append(heard)
        script = self._script[heard.api]
        return script.popleft()(self, heard) if script else self.usual(heard)

    def usual(self, heard: Heard) -> bytes:
        """What a healthy broker says."""
        if heard.api is ApiKey.PRODUCE:
            return self.produce_answer(heard, self.cluster.store)
        entity: Any
        if heard.api is ApiKey.METADATA:
            names = None if heard.body.topics is None else [t.name for t in heard.body.topics]
            entity = self.cluster.metadata(heard.version, names)
        elif heard.api is ApiKey.API_VERSIONS:
            entity = api_versions(heard.version, self.offered)
        else:
            self.cluster.producer_ids += 1
            entity = responses(heard.api, heard.version).InitProducerIdResponse(
                throttle_time=timedelta(0),
                error_code=ErrorCode.none,
                producer_id=self.cluster.producer_ids,
                producer_epoch=0,
            )
        return frame(heard, entity)

    def produce_answer(
        self,
        heard: Heard,
        store: Callable[[TopicPartition, list[RecordBatch]], tuple[int, int]],
        *,
        leader: tuple[int, int] = (-1, -1),
        records: Mapping[int, str | None] = MappingProxyType({}),
    ) -> bytes:
        """An answer in which ``store`` decides error code and base offset of every partition."""
        schema = responses(ApiKey.PRODUCE, heard.version)
        topics = []
        for topic in heard.body.topic_data:
            parts = []
            for part in topic.partition_data:
                tp = TopicPartition(self.cluster.name_of(topic), part.index)
                code, offset = store(tp, list(read_batches(part.records)))
                values: dict[str, Any] = {}
                if heard.version >= 10 and leader != (-1, -1):
                    values["current_leader"] = schema.LeaderIdAndEpoch(
                        leader_id=leader[0], leader_epoch=leader[1]
                    )
                parts.append(
                    build(
                        schema.PartitionProduceResponse,
                        index=part.index,
                        error_code=ErrorCode(code),
                        base_offset=offset,
                        log_append_time=None,
                        log_start_offset=0,
                        record_errors=tuple(
                            schema.BatchIndexAndErrorMessage(
                                batch_index=index, batch_index_error_message=text
                            )
                            for index, text in records.items()
                        ),
                        error_message=None,
                        **values,
                    )
                )
            topics.append(
                build(
                    schema.TopicProduceResponse,
                    name=getattr(topic, "name", None),
                    topic_id=getattr(topic, "topic_id", None),
                    partition_responses=tuple(parts),
                )
            )
        if heard.body.acks == 0:
            return b""
        return frame(
            heard,
            build(
                schema.ProduceResponse,
                responses=tuple(topics),
                throttle_time=timedelta(milliseconds=self.throttle_ms),
                **self._endpoints(schema, leader[0]),
            ),
        )

    def _endpoints(self, schema: Any, node_id: int) -> dict[str, Any]:
        """Where the leader is that an answer names, as brokers tell from version 10 on."""
        leader = self.cluster.brokers.get(node_id)
        if leader is None or not hasattr(schema, "NodeEndpoint"):
            return {}
        endpoint = schema.NodeEndpoint(node_id=node_id, host=leader.host, port=leader.port)
        return {"node_endpoints": (endpoint,)}


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
        """A broker that listens, and that metadata tells of."""
        host = host or f"broker-{node_id}"
        broker = self.brokers[node_id] = ScriptedBroker(self, node_id, host, port)
        self.listeners[host, port] = broker.accept
        return broker

    def name_of(self, topic: Any) -> str:
        """The topic a Produce request means: newer versions name it by its id."""
        name: str | None = getattr(topic, "name", None)
        if name is not None:
            return name
        return next((n for n, topic_id in self.topic_ids.items() if topic_id == topic.topic_id), "")

    def values(self, topic: str, partition: int = 0) -> list[bytes | None]:
        """The values stored in one partition, in order."""
        batches = self.log.get(TopicPartition(topic, partition), [])
        return [record.value for batch in batches for record in batch.records()]

    def store(self, tp: TopicPartition, batches: list[RecordBatch]) -> tuple[int, int]:
        """Append, whatever it is, to a topic that exists; error code and base offset."""
        if tp.topic not in self.topics:
            return UNKNOWN_TOPIC_ID, -1
        log = self.log.setdefault(tp, [])
        offset = sum(batch.record_count for batch in log)
        log += batches
        return 0, offset

    def metadata(self, version: int, names: list[str] | None) -> Any:
        """The cluster as it is now, with the topics that were asked for."""
        schema = responses(ApiKey.METADATA, version)
        return build(
            schema.MetadataResponse,
            throttle_time=timedelta(0),
            error_code=ErrorCode.none,
            brokers=tuple(
                schema.MetadataResponseBroker(node_id=b.node_id, host=b.host, port=b.port)
                for b in self.brokers.values()
            ),
            cluster_id=self.cluster_id,
            controller_id=min(self.brokers, default=-1),
            topics=tuple(self._topic(schema, name) for name in names or sorted(self.topics)),
        )

    def _topic(self, schema: Any, name: str) -> Any:
        leaders = self.topics.get(name, [])
        code = self.errors.get(name, 0 if leaders else 3)
        return build(
            schema.MetadataResponseTopic,
            error_code=ErrorCode(code),
            name=name,
            topic_id=self.topic_ids.get(name),
            is_internal=False,
            partitions=tuple(
                build(
                    schema.MetadataResponsePartition,
                    error_code=ErrorCode.none if leader >= 0 else ErrorCode.leader_not_available,
                    partition_index=number,
                    leader_id=leader,
                    leader_epoch=self.leader_epoch,
                    replica_nodes=(),
                    isr_nodes=(),
                    offline_replicas=(),
                )
                for number, leader in enumerate(leaders)
            ),
        )


def api_versions(version: int, offered: dict[ApiKey, tuple[int, int]], error: int = 0) -> Any:
    """An ApiVersions response entity."""
    schema = responses(ApiKey.API_VERSIONS, version)
    return build(
        schema.ApiVersionsResponse,
        error_code=ErrorCode(error),
        api_keys=tuple(
            schema.ApiVersion(api_key=api, min_version=first, max_version=last)
            for api, (first, last) in offered.items()
        ),
        throttle_time=timedelta(0),
    )


class _Connection:
    def __init__(self, broker: ScriptedBroker) -> None:
        self._broker = broker
        self._frames = FrameReader()
        self._silent = False  # answers come in order: none may follow one that is left out

    def receive(self, data: bytes) -> bytes:
        return b"".join(self._answer(message) for message in self._frames.feed(data))

    def _answer(self, message: memoryview) -> bytes:
        api = ApiKey(int.from_bytes(message[:2], "big"))
        version = int.from_bytes(message[2:4], "big")
        entity = getattr(request_schema(api, version), REQUEST_NAMES[api])
        size = len(message).to_bytes(4, "big")
        header, body = decode_request(entity, size + bytes(message))
        answer = self._broker.answer(Heard(api, version, header.correlation_id, body))
        self._silent = self._silent or answer is None
        return b"" if self._silent or answer is None else answer
