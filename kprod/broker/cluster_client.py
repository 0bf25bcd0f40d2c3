"""Blocking connections to the nodes of a cluster, for tools that look at what it stored."""

from __future__ import annotations

import contextlib
import socket
import struct
import time
from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final, NamedTuple, Self

from kprod.broker.client_security import NO_SECURITY, ClientSecurity
from kprod.broker.leader_wait import ALL_LEADERS, BegunWait, LeaderWait, without_leader
from kprod.broker.protocol.api_key import ApiKey
from kprod.broker.protocol.messages import Message, request_schema, response_schema
from kprod.broker.records.codecs import CorruptBatch
from kprod.broker.records.legacy_message import StoredBatch, read_sets
from kprod.broker.records.record_batch import StoredRecord
from kprod.errors import (
    BrokerError,
    ConfigError,
    ConnectionLost,
    KprodError,
    KprodTimeoutError,
    PartitionError,
    ProtocolError,
    UnsupportedVersionError,
)

_SIZE: Final = struct.Struct(">i")
_MAX_RESPONSE_BYTES: Final = 512 * 1024 * 1024
_CLIENT_ID: Final = "kprod-log-reader"
_RANGES_VERSION: Final = 0

_SPOKEN: Final[Mapping[ApiKey, tuple[int, int]]] = {
    ApiKey.FETCH: (4, 12),
    ApiKey.LIST_OFFSETS: (1, 7),
    ApiKey.METADATA: (4, 12),
    ApiKey.CREATE_TOPICS: (2, 7),
    ApiKey.DELETE_TOPICS: (1, 5),
    ApiKey.DESCRIBE_CONFIGS: (1, 4),
    ApiKey.FIND_COORDINATOR: (0, 3),
    ApiKey.OFFSET_COMMIT: (2, 8),
    ApiKey.OFFSET_FETCH: (1, 7),
    ApiKey.DESCRIBE_TRANSACTIONS: (0, 0),
    ApiKey.LIST_TRANSACTIONS: (0, 1),
    ApiKey.SASL_HANDSHAKE: (1, 1),
    ApiKey.SASL_AUTHENTICATE: (0, 2),
}
"""Lowest and highest version of each request below, the ones that go by topic names."""


_PERHAPS_GUARDED: Final = "; does this port expect TLS or a login? see security_protocol"
_PORT: Final = 9092
SILENCE: Final = 30.0
"""Seconds: the default of ``request.timeout.ms``."""


def _place(server: str) -> tuple[str, int]:
    """Host and port of an address, 9092 unless given. Raises ConfigError."""
    host, colon, port = server.rpartition(":")
    if not colon or server.endswith("]"):  # an IPv6 address without a port
        host, port = server, str(_PORT)
    if not host or not port.isdigit():
        raise ConfigError(f"{server!r} is not host:port")
    return host.strip("[]"), int(port)


def _reason(error: OSError) -> str:
    """What the system says of it, without the number."""
    return error.strerror or str(error)


class BrokerClient:
    """One connection to one broker, one request at a time, until ``deadline``.

    The deadline is in seconds of ``time.monotonic``; a broker that stays silent for ``silence``
    seconds is given up before. Not thread-safe. Raises ``ConnectionLost``, ``KprodTimeoutError``,
    ``ProtocolError`` and ``AuthenticationError``.
    """

    def __init__(
        self,
        host: str,
        port: int,
        deadline: float,
        security: ClientSecurity = NO_SECURITY,
        silence: float = SILENCE,
    ) -> None:
        self._name = f"{host}:{port}"
        self._deadline = deadline
        self._silence = silence
        self._is_guarded = security != NO_SECURITY
        self._correlation_id = 0
        try:
            plain = socket.create_connection((host, port), self._left())
        except OSError as error:
            raise ConnectionLost(f"{self._name}: {_reason(error)}") from error
        self._socket = security.secured(plain, host)
        try:
            self._ranges = self._learn_ranges()
            security.log_in(host, self.call)
        except BaseException:
            self.close()
            raise

    def _left(self) -> float:
        left = self._deadline - time.monotonic()
        if left <= 0:
            raise KprodTimeoutError(f"{self._name}: out of time")
        return min(left, self._silence)

    def _learn_ranges(self) -> dict[int, tuple[int, int]]:
        answer = self._exchange(ApiKey.API_VERSIONS, _RANGES_VERSION, {})
        if answer.error_code:
            raise ProtocolError(f"{self._name}: ApiVersions says {answer.error_code!r}")
        return {key.api_key: (key.min_version, key.max_version) for key in answer.api_keys}

    def call(self, api: ApiKey, values: Message) -> Any:
        """Send a request at the highest version both sides have; returns kio's response."""
        lowest, highest = _SPOKEN[api]
        theirs = self._ranges.get(api, (0, -1))
        version = min(highest, theirs[1])
        if version < max(lowest, theirs[0]):
            raise UnsupportedVersionError(
                f"{api.name}: {self._name} has {theirs}, needed {lowest}..{highest}"
            )
        return self._exchange(api, version, values)

    def _exchange(self, api: ApiKey, version: int, values: Message) -> Any:
        self._correlation_id += 1
        header = {
            "request_api_key": api,
            "request_api_version": version,
            "correlation_id": self._correlation_id,
            "client_id": _CLIENT_ID,
        }
        frame = request_schema(api, version).encode(header, values)
        try:
            self._socket.settimeout(self._left())
            self._socket.sendall(frame)
            answer = self._read_frame()
        except TimeoutError as error:
            raise KprodTimeoutError(f"{self._name}: no answer to {api.name}") from error
        except OSError as error:
            hint = "" if self._is_guarded else _PERHAPS_GUARDED
            raise ConnectionLost(f"{self._name}: {_reason(error)}{hint}") from error
        response_header, body = response_schema(api, version).decode(answer)
        if response_header.correlation_id != self._correlation_id:
            raise ProtocolError(f"{self._name}: the answer to another request")
        return body

    def _read_frame(self) -> bytes:
        (size,) = _SIZE.unpack(self._read(_SIZE.size))
        if not 0 < size <= _MAX_RESPONSE_BYTES:
            raise ProtocolError(f"{self._name}: a response of {size} bytes")
        return self._read(size)

    def _read(self, size: int) -> bytes:
        parts: list[bytes] = []
        while size:
            self._socket.settimeout(self._left())
            part = self._socket.recv(min(size, 1 << 20))
            if not part:
                raise ConnectionResetError("the broker closed the connection")
            parts.append(part)
            size -= len(part)
        return b"".join(parts)

    def close(self) -> None:
        """Idempotent."""
        self._socket.close()


_LATEST: Final = -1
_EARLIEST: Final = -2
_FETCH_BYTES: Final = 8 * 1024 * 1024
_MAX_WAIT_MS: Final = 500
_GLANCE_MS: Final = 100  # Tansu answers for no partition at all when it may not wait


_TOPIC: Final = 2  # org.apache.kafka.common.config.ConfigResource.Type
_OF_TOPIC: Final = 1  # DescribeConfigsResponse.ConfigSource.TOPIC_CONFIG


class PartitionPlace(NamedTuple):
    """Where a partition is: ids of nodes; ``leader`` -1 while it has none."""

    number: int
    leader: int
    replicas: tuple[int, ...]
    in_sync: tuple[int, ...]


class TopicDescription(NamedTuple):
    """``partitions`` in order; ``options`` that were set for this topic, by Kafka's names."""

    name: str
    internal: bool
    partitions: tuple[PartitionPlace, ...]
    options: Mapping[str, str]


class ClusterClient:
    """Connections to the brokers of a cluster, made when needed, and the topics of the cluster."""

    def __init__(
        self,
        bootstrap_servers: str,
        deadline: float,
        security: ClientSecurity = NO_SECURITY,
        silence: float = SILENCE,
    ) -> None:
        self._deadline = deadline
        self._security = security
        self._silence = silence
        self._closing = contextlib.ExitStack()
        self._clients: dict[int, BrokerClient] = {}
        self._addresses: dict[int, tuple[str, int]] = {}
        self._bootstrap = self._first_of(bootstrap_servers)

    def _first_of(self, bootstrap_servers: str) -> BrokerClient:
        tried: list[str] = []
        for server in bootstrap_servers.split(","):
            try:
                return self._connected(*_place(server.strip()))
            except (ConnectionLost, KprodTimeoutError) as error:
                tried.append(str(error))
        late = time.monotonic() >= self._deadline
        raise (KprodTimeoutError if late else ConnectionLost)("; ".join(tried))

    def _connected(self, host: str, port: int) -> BrokerClient:
        client = BrokerClient(host, port, self._deadline, self._security, self._silence)
        self._closing.callback(client.close)
        return client

    def addresses(self) -> list[str]:
        """``host:port`` of each node, as the cluster has told them last."""
        return [
            f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
            for host, port in self._addresses.values()
        ]

    def close(self) -> None:
        """Close all connections. Idempotent."""
        self._closing.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def leaders(self, topic: str, wait: LeaderWait = ALL_LEADERS) -> dict[int, int]:
        """The node that leads each partition, once there is a topic with leaders.

        Raises BrokerError; KprodTimeoutError for leaders that are missing at the end of the wait;
        PartitionError when the topic does not have the partition of ``wait``.
        """
        waiting = BegunWait(wait, self._deadline)
        while True:
            leaders, missing = self._present_leaders(topic, wait.partition)
            if missing is None:
                return leaders
            waiting.go_on(missing)

    def _present_leaders(
        self, topic: str, partition: int | None
    ) -> tuple[dict[int, int], KprodError | None]:
        """The leaders as they are, and the error that says which of them are missing."""
        (found,) = self._metadata([{"name": topic}]).topics
        if found.error_code:
            error = BrokerError(found.error_code, f"topic {topic!r}")
            if not error.retriable:
                raise error
            return {}, error
        parts = {part.partition_index: part for part in found.partitions}
        if partition is not None:
            if partition not in parts:
                raise PartitionError(
                    f"topic {topic!r} has partitions 0 to {len(parts) - 1}, no {partition}"
                )
            parts = {partition: parts[partition]}
        leaders = {number: part.leader_id for number, part in sorted(parts.items())}
        lost = [number for number, leader in leaders.items() if leader < 0]
        if lost or not leaders:
            return leaders, without_leader(topic, [parts[number] for number in lost])
        return leaders, None

    def topics(self) -> list[TopicDescription]:
        """Every topic the client may see, by name, without options."""
        found = self._metadata(None).topics
        usable = (_described(topic, {}) for topic in found if not topic.error_code)
        return sorted(usable, key=lambda topic: topic.name)

    def topic(self, name: str) -> TopicDescription:
        """One topic. ``BrokerError``."""
        (found,) = self._metadata([{"name": name}]).topics
        _check_results([found], name)
        wanted = {"resource_type": _TOPIC, "resource_name": name, "configuration_keys": None}
        answer = self.controller().call(ApiKey.DESCRIBE_CONFIGS, {"resources": [wanted]})
        _check_results(answer.results, name)
        own = [each for each in answer.results[0].configs if each.config_source == _OF_TOPIC]
        options = {each.name: "***" if each.is_sensitive else each.value or "" for each in own}
        return _described(found, options)

    def create_topic(
        self, name: str, partitions: int, replicas: int, options: Mapping[str, str]
    ) -> None:
        """Make a topic; -1 is for the brokers' default numbers. ``BrokerError``."""
        wanted = {
            "name": name,
            "num_partitions": partitions,
            "replication_factor": replicas,
            "configs": [{"name": each, "value": value} for each, value in options.items()],
        }
        values = {"topics": [wanted], "timeout": self._left_ms()}
        _check_results(self.controller().call(ApiKey.CREATE_TOPICS, values).topics, name)

    def delete_topic(self, name: str) -> None:
        """Delete a topic with all its records. ``BrokerError``."""
        values = {"topic_names": [name], "timeout": self._left_ms()}
        _check_results(self.controller().call(ApiKey.DELETE_TOPICS, values).responses, name)

    def _left_ms(self) -> int:
        return max(int((self._deadline - time.monotonic()) * 1000), 1)

    def _metadata(self, topics: list[dict[str, str]] | None) -> Any:
        wanted = {"topics": topics, "allow_auto_topic_creation": False}
        answer = self._bootstrap.call(ApiKey.METADATA, wanted)
        self._addresses = {broker.node_id: (broker.host, broker.port) for broker in answer.brokers}
        return answer

    def controller(self) -> BrokerClient:
        """The node that makes topics."""
        return self.client(self._metadata([]).controller_id)

    def brokers(self) -> list[BrokerClient]:
        """Connections to all brokers."""
        self._metadata([])
        return [self.client(node_id) for node_id in sorted(self._addresses)]

    def client(self, node_id: int) -> BrokerClient:
        """The connection to one node."""
        if node_id not in self._clients:
            self._clients[node_id] = self._connected(*self._addresses[node_id])
        return self._clients[node_id]

    def readers(self, topic: str, wait: LeaderWait = ALL_LEADERS) -> dict[int, PartitionReader]:
        """A reader of each partition, by number. Raises as ``leaders``."""
        return {
            number: PartitionReader(self.client(leader), topic, number)
            for number, leader in self.leaders(topic, wait).items()
        }


def _check_results(results: Iterable[Any], topic: str) -> None:
    """Raise the ``BrokerError`` of an answer about a topic, if it has one."""
    for result in results:
        if result.error_code:
            said = getattr(result, "error_message", None) or f"topic {topic!r}"
            raise BrokerError(result.error_code, said)


def _described(topic: Any, options: Mapping[str, str]) -> TopicDescription:
    places = sorted(
        PartitionPlace(p.partition_index, p.leader_id, tuple(p.replica_nodes), tuple(p.isr_nodes))
        for p in topic.partitions
    )
    return TopicDescription(topic.name, bool(topic.is_internal), tuple(places), options)


class _Aborted:
    """The aborted transactions that one Fetch has told, by their first offsets."""

    def __init__(self, told: Iterable[Any]) -> None:
        self._coming = deque(sorted((one.first_offset, one.producer_id) for one in told))
        self._begun: set[int] = set()

    def has(self, batch: StoredBatch) -> bool:
        """Whether the batch is of one of them. Batches come in the order of their offsets."""
        while self._coming and self._coming[0][0] <= batch.last_offset:
            self._begun.add(self._coming.popleft()[1])
        if batch.is_control:
            self._begun.discard(batch.producer_id)
            return False
        return batch.is_transactional and batch.producer_id in self._begun


class PartitionReader:
    """One partition, through a connection to its leader. ``position`` is the next offset read.

    With ``committed`` it ends at the last stable offset, and leaves out records of transactions
    that were aborted (KIP-98).
    """

    def __init__(
        self, client: BrokerClient, topic: str, number: int, *, committed: bool = False
    ) -> None:
        self.position = 0
        self._isolation = 1 if committed else 0
        self._client = client
        self._topic = topic
        self._number = number

    def start(self) -> int:
        """The offset of the first record."""
        return self._list_offset(_EARLIEST)

    def end(self) -> int:
        """The offset of the next record; the larger one where a broker has two answers.

        Tansu's ListOffsets leaves out the last batch, and the high watermark of its Fetch does not.
        """
        listed = self._list_offset(_LATEST)
        if self._isolation:
            return listed
        committed: int = self._fetch(listed, wait=False).high_watermark
        return max(listed, committed)

    def at_time(self, timestamp_ms: int) -> int:
        """The offset of the first record of that time or later; the end when there is none."""
        found = self._list_offset(timestamp_ms)
        return self.end() if found < 0 else found

    def poll(self) -> Iterator[StoredRecord]:
        """The records of one Fetch, which waits half a second for some; no markers.

        Raises ``CorruptBatch`` where a CRC is wrong.
        """
        part = self._fetch(self.position, wait=True)
        if part.error_code:
            raise BrokerError(part.error_code, f"{self._name} at offset {self.position}")
        aborted = _Aborted(part.aborted_transactions or () if self._isolation else ())
        for batch in read_sets(part.records or b""):
            if not batch.crc_ok:
                raise CorruptBatch(f"{self._name}: wrong CRC at offset {batch.base_offset}")
            left_out = aborted.has(batch) or batch.is_control
            for record in () if left_out else batch.records():
                if record.offset >= self.position:
                    self.position = record.offset + 1
                    yield record
            self.position = max(self.position, batch.last_offset + 1)

    def read(self, start: int, end: int) -> Iterator[StoredRecord]:
        """The records from one offset to the one before another."""
        self.position = start
        while self.position < end:
            yield from (record for record in self.poll() if record.offset < end)

    @property
    def _name(self) -> str:
        return f"{self._topic}-{self._number}"

    def _list_offset(self, timestamp: int) -> int:
        wanted = {
            "partition_index": self._number,
            "timestamp": timestamp,
            "current_leader_epoch": -1,
        }
        answer = self._client.call(
            ApiKey.LIST_OFFSETS,
            {
                "replica_id": -1,
                "isolation_level": self._isolation,
                "topics": [{"name": self._topic, "partitions": [wanted]}],
            },
        )
        part = answer.topics[0].partitions[0]
        if part.error_code:
            raise BrokerError(part.error_code, self._name)
        offset: int = part.offset
        return offset

    def _fetch(self, offset: int, *, wait: bool) -> Any:
        """What Fetch says of the partition; without ``wait`` soon, and of little size."""
        wanted = {
            "partition": self._number,
            "fetch_offset": offset,
            "partition_max_bytes": _FETCH_BYTES if wait else 1,
            "current_leader_epoch": -1,
            "last_fetched_epoch": -1,
            "log_start_offset": -1,
        }
        answer = self._client.call(
            ApiKey.FETCH,
            {
                "replica_id": -1,
                "max_wait": _MAX_WAIT_MS if wait else _GLANCE_MS,
                "min_bytes": 1 if wait else 0,
                "max_bytes": _FETCH_BYTES,
                "isolation_level": self._isolation,
                "session_epoch": -1,
                "topics": [{"topic": self._topic, "partitions": [wanted]}],
            },
        )
        return answer.responses[0].partitions[0]
