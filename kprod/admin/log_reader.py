"""Reads a topic of any Kafka cluster over the network, once or continuously."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import partial
from math import inf
from typing import Any, Final, Self, TypeAlias

from kprod.admin.cluster_client import NO_OPTIONS, connect
from kprod.admin.group_offsets import COORDINATOR_ERRORS, fetch_offsets
from kprod.admin.leader_wait import ALL_LEADERS, BegunWait, LeaderWait
from kprod.admin.partition_reader import PartitionReader, readers
from kprod.config.reading import concealed
from kprod.errors import BrokerError, ErrorCode, KprodError, PartitionError, ProtocolError
from kprod.records.record_batch import StoredRecord
from kprod.wire.admin import commit_offsets

_DEFAULT_TIMEOUT: Final = 30.0
_OF_COORDINATOR: Final = frozenset(
    {
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.NOT_COORDINATOR,
    }
)


def read_topic(
    bootstrap_servers: str | None,
    topic: str,
    *,
    since: Mapping[int, int] | None = None,
    timeout: float = _DEFAULT_TIMEOUT,
    options: Mapping[str, Any] = NO_OPTIONS,
) -> Iterator[tuple[int, StoredRecord]]:
    """Yield each record with its partition, one partition after the other, up to the current end.

    The end of each partition is read once, at the beginning. ``since`` maps partitions to start
    offsets, as ``end_offsets`` returns them. A partition without a start offset, or whose start
    offset no longer exists, is read from its first record. Transaction markers are left out;
    records of aborted transactions are included. Raises ``CorruptBatch`` if the CRC of a batch is
    wrong. ``timeout`` is in seconds; ``options`` are those of a producer.
    """
    options = concealed(options)
    with connect(bootstrap_servers, timeout, options) as cluster:
        spans = {
            number: (log, max(log.start(), (since or {}).get(number, 0)), log.end())
            for number, log in readers(cluster, topic).items()
        }
        for number, (log, start, end) in spans.items():
            for record in log.read(start, end):
                yield number, record


def end_offsets(
    bootstrap_servers: str | None,
    topic: str,
    *,
    timeout: float = _DEFAULT_TIMEOUT,
    options: Mapping[str, Any] = NO_OPTIONS,
) -> dict[int, int]:
    """Return the offset of the next record of each partition."""
    options = concealed(options)
    with connect(bootstrap_servers, timeout, options) as cluster:
        return {number: log.end() for number, log in readers(cluster, topic).items()}


def create_topic(
    bootstrap_servers: str | None,
    name: str,
    partitions: int,
    *,
    timeout: float = _DEFAULT_TIMEOUT,
    options: Mapping[str, Any] = NO_OPTIONS,
) -> None:
    """Create a topic with one replica.

    ``timeout`` is in seconds. ``options`` are those of a producer, not settings of the topic.
    Raises BrokerError with code 36 (TOPIC_ALREADY_EXISTS) if the topic exists.
    """
    options = concealed(options)
    with connect(bootstrap_servers, timeout, options) as cluster:
        cluster.create_topic(name, partitions, 1, {})


Begin: TypeAlias = Callable[[PartitionReader], int]
"""Returns the offset at which to start reading a partition."""


def _position(reader: PartitionReader, committed: int | None, begin: Begin) -> int:
    """The offset at which a group continues: the first that exists from its committed offset on.

    Retention may have deleted records after the committed offset. If the topic ends before the
    committed offset, it is a new topic with the same name. The group then starts at ``begin``, like
    a group without a committed offset.
    """
    if committed is None or committed > reader.high_watermark():
        return begin(reader)
    return max(committed, reader.start())


def _ignore(_partition: int, _position: int, _start: int) -> None:
    pass


class TopicFollower:
    """Reads all partitions of a topic, or one of them, continuously. Not thread-safe.

    With a ``group``, it continues at the group's committed offsets, or at the first remaining
    records after them, and ``commit`` commits the position. A commit fails if the group has
    members. Without a group or a committed offset, reading starts at the offset that ``begin``
    returns, such as ``PartitionReader.start`` or ``.end``. ``wait`` limits each wait for a missing
    topic, leader, coordinator or broker (except the first broker), and for the end of a transaction
    with the group's offsets. It may also name the only partition to read. ``committed`` is as in
    ``PartitionReader``. If records are deleted before they are read, reading continues after them,
    and ``skipped`` is called with the partition, its position and its new one. ``options`` are
    those of a producer. Raises the errors of ``read_topic``, and PartitionError for a missing
    partition.
    """

    def __init__(
        self,
        topic: str,
        options: Mapping[str, Any],
        *,
        begin: Begin,
        wait: LeaderWait = ALL_LEADERS,
        group: str | None = None,
        committed: bool = False,
        skipped: Callable[[int, int, int], object] = _ignore,
    ) -> None:
        options = concealed(options)
        self._topic = topic
        self._group = group
        self._wait = wait
        self._waiting: BegunWait | None = None  # since the last complete round
        self._committed = committed
        self._skipped = skipped
        self._connect = partial(connect, None, inf, options)
        self._cluster = self._connect()
        try:
            self._readers = self._find_readers()
            offsets = self._offsets()
            for number, reader in self._readers.items():
                reader.position = _position(reader, offsets.get(number), begin)
            self.ends = {number: reader.end() for number, reader in self._readers.items()}
            self._shown = {number: reader.position for number, reader in self._readers.items()}
        except BaseException:
            self._cluster.close()
            raise

    @property
    def at_end(self) -> bool:
        """Whether everything was read up to the end that each partition had at the beginning."""
        return all(self._readers[number].position >= end for number, end in self.ends.items())

    def poll(self) -> Iterator[tuple[int, StoredRecord]]:
        """Yield each record with its partition, in one round over the partitions.

        If a connection is lost or a leader moves, the round ends. The next round continues at the
        same position, with the current leaders.
        """
        try:
            for number, reader in self._readers.items():
                yield from ((number, record) for record in self._records(number, reader))
                self._shown[number] = reader.position  # after markers, too
            self._waiting = None
        except KprodError as error:
            # What is no answer of Kafka, or too large a one, is so again.
            if not error.retriable or isinstance(error, ProtocolError):
                raise
            waiting, self._waiting = self._waiting or BegunWait(self._wait), None
            self._find_leaders(error, waiting)
            self._waiting = waiting

    def _records(self, number: int, reader: PartitionReader) -> Iterator[StoredRecord]:
        try:
            yield from reader.poll()
        except BrokerError as error:
            if error.code != ErrorCode.OFFSET_OUT_OF_RANGE:
                raise
            start = reader.start()
            if start <= reader.position:  # the end is gone, not the beginning
                raise
            self._skipped(number, reader.position, start)
            reader.position = start

    def _find_leaders(self, lost: KprodError, waiting: BegunWait) -> None:
        """Find the leaders again. Raises the last error when the wait is over."""
        while True:
            waiting.pause(lost)
            try:
                found = self._find_readers()
            except KprodError as error:
                if not error.retriable:
                    raise
                lost = error
                continue
            missing = self._readers.keys() - found.keys()
            if missing:
                raise PartitionError(
                    f"topic {self._topic!r} has partitions 0 to {len(found) - 1}, no"
                    f" {min(missing)}: it was deleted and created again"
                )
            for number, reader in self._readers.items():
                found[number].position = reader.position
            self._readers = {number: found[number] for number in self._readers}
            return

    def shown(self, partition: int, record: StoredRecord) -> None:
        """Mark a record of ``poll`` as processed by the group."""
        self._shown[partition] = record.offset + 1

    def _find_readers(self) -> dict[int, PartitionReader]:
        return readers(self._cluster, self._topic, self._wait, committed=self._committed)

    def _offsets(self) -> dict[int, int]:
        if self._group is None:
            return {}
        topics = {self._topic: list(self._readers)}
        found = fetch_offsets(self._cluster, self._group, topics, wait=self._wait)
        return {place.partition: committed.offset for place, committed in found.items()}

    def commit(self) -> None:
        """Commit the group's position. Raises ``BrokerError`` if the group has members.

        The position is after the records passed to ``shown``, and after all records of a complete
        round of ``poll``. Uses new connections, because a signal may have interrupted ``poll``
        between a request and its answer. Waits at most 30 seconds for the group's coordinator,
        because the application may be ending.
        """
        group = self._group
        if group is None:
            return
        question = commit_offsets(group, self._topic, self._shown)

        def ask() -> list[int]:
            codes = cluster.ask(question, cluster.coordinator(group))
            for code in _OF_COORDINATOR.intersection(codes):
                raise BrokerError(code, f"group {group!r}")
            return codes

        wait = self._wait._replace(seconds=min(self._wait.seconds, _DEFAULT_TIMEOUT))
        with self._connect() as cluster:
            for code in cluster.retried(ask, wait, COORDINATOR_ERRORS):
                if code:  # not waited for: the topic may have gone
                    raise BrokerError(code, f"group {group!r}")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._cluster.close()
