"""Connections to the nodes of a cluster, for tools that look at what it stored."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator
from typing import Any, Final

from kprod.broker.api_key import ApiKey
from kprod.broker.client import BrokerClient
from kprod.broker.client_security import NO_SECURITY, ClientSecurity
from kprod.broker.legacy_message import read_sets
from kprod.broker.record_batch import CorruptBatch, StoredRecord
from kprod.errors import BrokerError, ConfigError, ConnectionLost, KprodTimeoutError
from kprod.types import BytesLike

_LATEST: Final = -1
_EARLIEST: Final = -2
_FETCH_BYTES: Final = 8 * 1024 * 1024
_MAX_WAIT_MS: Final = 500
_GLANCE_MS: Final = 100  # Tansu answers for no partition at all when it may not wait
_RETRY_PAUSE: Final = 0.05


class ClusterClient:
    """Connections to the brokers of a cluster, made when needed."""

    def __init__(
        self, bootstrap_servers: str, deadline: float, security: ClientSecurity = NO_SECURITY
    ) -> None:
        self._deadline = deadline
        self._security = security
        self._closing = contextlib.ExitStack()
        self._clients: dict[int, BrokerClient] = {}
        self._addresses: dict[int, tuple[str, int]] = {}
        self._bootstrap = self._first_of(bootstrap_servers)

    def _first_of(self, bootstrap_servers: str) -> BrokerClient:
        tried: list[str] = []
        for server in bootstrap_servers.split(","):
            host, _, port = server.strip().rpartition(":")
            if not host or not port.isdigit():
                raise ConfigError(f"{server!r} is not host:port")
            try:
                client = BrokerClient(host.strip("[]"), int(port), self._deadline, self._security)
            except ConnectionLost as error:
                tried.append(str(error))
            else:
                return self._closing.enter_context(client)
        raise ConnectionLost("; ".join(tried))

    def __enter__(self) -> ClusterClient:
        return self

    def __exit__(self, *_: object) -> None:
        self._closing.close()

    def leaders(self, topic: str) -> dict[int, int]:
        """The node of each partition; waits for a topic that is not there or not ready yet."""
        while True:
            (found,) = self._metadata([{"name": topic}]).topics
            error = BrokerError(found.error_code, topic) if found.error_code else None
            leaders = {part.partition_index: part.leader_id for part in found.partitions}
            if error is None and min(leaders.values(), default=-1) >= 0:
                return leaders
            if error is not None and not error.retriable:
                raise error
            if time.monotonic() + _RETRY_PAUSE > self._deadline:
                raise error or KprodTimeoutError(f"{topic} has partitions without a leader")
            time.sleep(_RETRY_PAUSE)

    def _metadata(self, topics: list[dict[str, str]]) -> Any:
        wanted = {"topics": topics, "allow_auto_topic_creation": False}
        answer = self._bootstrap.call(ApiKey.METADATA, wanted)
        self._addresses = {broker.node_id: (broker.host, broker.port) for broker in answer.brokers}
        return answer

    def controller(self) -> BrokerClient:
        """The node that makes topics."""
        return self.client(self._metadata([]).controller_id)

    def brokers(self) -> list[BrokerClient]:
        """Connections to all brokers there are."""
        self._metadata([])
        return [self.client(node_id) for node_id in sorted(self._addresses)]

    def client(self, node_id: int) -> BrokerClient:
        """The connection to one node."""
        if node_id not in self._clients:
            fresh = BrokerClient(*self._addresses[node_id], self._deadline, self._security)
            self._clients[node_id] = self._closing.enter_context(fresh)
        return self._clients[node_id]


class PartitionReader:
    """One partition, through a connection to its leader."""

    def __init__(self, client: BrokerClient, topic: str, number: int) -> None:
        self._client = client
        self._topic = topic
        self._number = number

    def start(self) -> int:
        """The offset of the first record there is."""
        return self._list_offset(_EARLIEST)

    def end(self) -> int:
        """The offset of the next record; the larger one where a broker has two answers.

        Tansu's ListOffsets leaves out the last batch, and the high watermark of its Fetch does not.
        """
        listed = self._list_offset(_LATEST)
        committed: int = self._fetch(listed, wait=False).high_watermark
        return max(listed, committed)

    def read(self, start: int, end: int) -> Iterator[StoredRecord]:
        """The records from one offset to the one before another."""
        at = start
        while at < end:
            for batch in read_sets(self.fetched(at)):
                if not batch.crc_ok:
                    raise CorruptBatch(f"{self._name}: wrong CRC at offset {batch.base_offset}")
                if not batch.is_control:
                    for record in batch.records():
                        if at <= record.offset < end:
                            yield record
                at = batch.last_offset + 1

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
            {"replica_id": -1, "topics": [{"name": self._topic, "partitions": [wanted]}]},
        )
        part = answer.topics[0].partitions[0]
        if part.error_code:
            raise BrokerError(part.error_code, self._name)
        offset: int = part.offset
        return offset

    def fetched(self, offset: int) -> BytesLike:
        """The batches from ``offset`` on, once there are some or half a second is over."""
        part = self._fetch(offset, wait=True)
        if part.error_code:
            raise BrokerError(part.error_code, f"{self._name} at offset {offset}")
        records: BytesLike | None = part.records
        return records or b""

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
                "session_epoch": -1,
                "topics": [{"topic": self._topic, "partitions": [wanted]}],
            },
        )
        return answer.responses[0].partitions[0]
