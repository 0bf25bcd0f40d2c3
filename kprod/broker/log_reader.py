"""Read what a topic holds, over the network, from any Kafka: once, or as it grows."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Any, Final, Self, TypeAlias

from kprod.broker.client_security import NO_SECURITY, ClientSecurity
from kprod.broker.cluster_client import BrokerClient, ClusterClient, PartitionReader
from kprod.broker.leader_wait import ALL_LEADERS, BegunWait, LeaderWait
from kprod.broker.protocol.api_key import ApiKey
from kprod.broker.records.record_batch import StoredRecord
from kprod.errors import BrokerError, KprodError

_DEFAULT_TIMEOUT: Final = 30.0


def read_topic(
    bootstrap_servers: str,
    topic: str,
    *,
    since: Mapping[int, int] | None = None,
    timeout: float = _DEFAULT_TIMEOUT,
    security: ClientSecurity = NO_SECURITY,
) -> Iterator[tuple[int, StoredRecord]]:
    """Partition and record, partition after partition, up to the end each one has at the start.

    ``since`` maps partitions to the offset to begin at, as ``end_offsets`` returns them; one that
    is not in it, or has lost what it had there, is read from its first record. Checks every batch's
    CRC and raises ``CorruptBatch`` when it is wrong. Markers of transactions are left out; records
    of aborted transactions are not.
    """
    with ClusterClient(bootstrap_servers, time.monotonic() + timeout, security) as cluster:
        spans = {
            number: (log, max(log.start(), (since or {}).get(number, 0)), log.end())
            for number, log in cluster.readers(topic).items()
        }
        for number, (log, start, end) in spans.items():
            for record in log.read(start, end):
                yield number, record


def end_offsets(
    bootstrap_servers: str,
    topic: str,
    *,
    timeout: float = _DEFAULT_TIMEOUT,
    security: ClientSecurity = NO_SECURITY,
) -> dict[int, int]:
    """The offset the next record will get, for each partition."""
    with ClusterClient(bootstrap_servers, time.monotonic() + timeout, security) as cluster:
        return {number: log.end() for number, log in cluster.readers(topic).items()}


def create_topic(
    bootstrap_servers: str,
    name: str,
    partitions: int,
    *,
    timeout: float = _DEFAULT_TIMEOUT,
    security: ClientSecurity = NO_SECURITY,
) -> None:
    """Make a topic with one replica. ``BrokerError`` 36 when the name is taken."""
    with ClusterClient(bootstrap_servers, time.monotonic() + timeout, security) as cluster:
        cluster.create_topic(name, partitions, 1, {})


_FOR_EVER: Final = 10 * 365 * 86_400.0
_NO_OFFSET: Final = -1


Begin: TypeAlias = Callable[[PartitionReader], int]
"""The offset at which to begin to read a partition."""


def _position(reader: PartitionReader, committed: int | None, begin: Begin) -> int:
    """Where a group goes on: at what is left of the records that it has not read.

    Retention may have taken those behind its place; where the topic ends before that, it is another
    topic of the same name, and new to the group.
    """
    if committed is None or committed > reader.end():
        return begin(reader)
    return max(committed, reader.start())


class TopicFollower:
    """All partitions of one topic, or one of them, from any Kafka. Not thread-safe.

    With a ``group`` it goes on where that group committed, or with the first record behind that
    which is left, and ``commit`` says how far it came.
    It commits as a simple consumer: a group that has members refuses that. Otherwise it begins
    where ``begin`` says: ``PartitionReader.start`` or ``.end``, or at an offset that it works out.
    ``wait`` bounds each wait for a topic, a leader or a broker that is missing, though not for the
    first broker, and names the partition to read if that is only one. Raises what ``read_topic``
    does, and PartitionError for a partition that is not there.
    """

    def __init__(
        self,
        bootstrap_servers: str,
        topic: str,
        *,
        begin: Begin,
        wait: LeaderWait = ALL_LEADERS,
        group: str | None = None,
        security: ClientSecurity = NO_SECURITY,
    ) -> None:
        self._topic = topic
        self._group = group
        self._wait = wait
        self._waiting: BegunWait | None = None  # since the last round that came to its end
        self._bootstrap_servers = bootstrap_servers
        self._connect = partial(
            ClusterClient, deadline=time.monotonic() + _FOR_EVER, security=security
        )
        self._cluster = self._connect(bootstrap_servers)
        try:
            self._readers = self._cluster.readers(topic, wait)
            committed = self._committed()
            for number, reader in self._readers.items():
                reader.position = _position(reader, committed.get(number), begin)
            self.ends = {number: reader.end() for number, reader in self._readers.items()}
            self._shown = {number: reader.position for number, reader in self._readers.items()}
        except BaseException:
            self._cluster.close()
            raise

    @property
    def at_end(self) -> bool:
        """Whether everything was read that was there in the beginning."""
        return all(self._readers[number].position >= end for number, end in self.ends.items())

    def poll(self) -> Iterator[tuple[int, StoredRecord]]:
        """Partition and record, of one round over the partitions.

        When a connection breaks or a leader moves, the round ends, and the next one goes on at the
        same records, from the brokers that lead then.
        """
        try:
            for number, reader in self._readers.items():
                yield from ((number, record) for record in reader.poll())
                self._shown[number] = reader.position  # behind markers, too
            self._waiting = None
        except KprodError as error:
            if not error.retriable:
                raise
            waiting, self._waiting = self._waiting or BegunWait(self._wait), None
            self._reconnect(error, waiting)
            self._waiting = waiting

    def _reconnect(self, lost: KprodError, waiting: BegunWait) -> None:
        """Find the leaders anew. Raises the last reason when the wait is over."""
        while True:
            waiting.go_on(lost)
            servers = self._servers()
            self._cluster.close()
            try:
                self._cluster = self._connect(servers)
                readers = self._cluster.readers(self._topic, self._wait)
            except KprodError as error:
                if not error.retriable:
                    raise
                lost = error
                continue
            for number, reader in self._readers.items():
                readers[number].position = reader.position
            self._readers = {number: readers[number] for number in self._readers}
            return

    def _servers(self) -> str:
        """Those that were given, then those that the cluster has told."""
        return ",".join([self._bootstrap_servers, *self._cluster.addresses()])

    def shown(self, partition: int, record: StoredRecord) -> None:
        """A record of ``poll`` that the group need not read again."""
        self._shown[partition] = record.offset + 1

    def _coordinator(self, cluster: ClusterClient) -> BrokerClient:
        wanted = {"key": self._group, "key_type": 0}
        answer = cluster.controller().call(ApiKey.FIND_COORDINATOR, wanted)
        if answer.error_code:
            raise BrokerError(answer.error_code, f"the coordinator of group {self._group}")
        return cluster.client(answer.node_id)

    def _committed(self) -> dict[int, int]:
        if self._group is None:
            return {}
        topics = [{"name": self._topic, "partition_indexes": list(self._readers)}]
        wanted = {"group_id": self._group, "topics": topics}
        answer = self._coordinator(self._cluster).call(ApiKey.OFFSET_FETCH, wanted)
        found = {}
        for part in self._parts(answer):
            if part.committed_offset != _NO_OFFSET:
                found[part.partition_index] = part.committed_offset
        return found

    def commit(self) -> None:
        """Have the group go on behind what was shown. ``BrokerError`` when it has members.

        A round of ``poll`` that came to its end was shown as a whole. It takes new connections: a
        signal may have ended ``poll`` between a request and its answer.
        """
        if self._group is None:
            return
        parts = [
            {
                "partition_index": number,
                "committed_offset": offset,
                "committed_leader_epoch": -1,
                "committed_metadata": "",
            }
            for number, offset in self._shown.items()
        ]
        wanted = {
            "group_id": self._group,
            "generation_id_or_member_epoch": -1,
            "retention_time_ms": -1,
            "topics": [{"name": self._topic, "partitions": parts}],
        }
        with self._connect(self._servers()) as cluster:
            self._parts(self._coordinator(cluster).call(ApiKey.OFFSET_COMMIT, wanted))

    def _parts(self, answer: Any) -> list[Any]:
        parts = [part for topic in answer.topics for part in topic.partitions]
        for error in (getattr(answer, "error_code", 0), *(part.error_code for part in parts)):
            if error:
                raise BrokerError(error, f"group {self._group}")
        return parts

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._cluster.close()
