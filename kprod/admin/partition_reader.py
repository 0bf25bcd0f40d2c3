"""The records of one partition, fetched from its leader."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator
from typing import Final

from kprod.admin.cluster_client import ClusterClient
from kprod.admin.leader_wait import ALL_LEADERS, LeaderWait
from kprod.errors import BrokerError
from kprod.records.codecs import CorruptBatch
from kprod.records.legacy_message import StoredBatch, read_sets
from kprod.records.record_batch import StoredRecord
from kprod.wire.admin import EARLIEST, LATEST, FetchedPartition, fetch, list_offset

_FETCH_BYTES: Final = 8 * 1024 * 1024
_MAX_WAIT_MS: Final = 500
_GLANCE_MS: Final = 100  # Tansu returns no partitions if it may not wait


class _Aborted:
    """The aborted transactions of one Fetch, by their first offsets."""

    def __init__(self, aborted: Iterable[tuple[int, int]]) -> None:
        self._coming = deque(sorted((first, producer_id) for producer_id, first in aborted))
        self._begun: set[int] = set()

    def has(self, batch: StoredBatch) -> bool:
        """Whether the batch is of an aborted transaction. Call this for batches in offset order."""
        while self._coming and self._coming[0][0] <= batch.last_offset:
            self._begun.add(self._coming.popleft()[1])
        if batch.is_control:
            self._begun.discard(batch.producer_id)
            return False
        return batch.is_transactional and batch.producer_id in self._begun


class PartitionReader:
    """Reads one partition from its leader. ``position`` is the next offset.

    With ``committed``, it stops before records of open transactions (at the last stable offset),
    and leaves out records of aborted transactions (KIP-98). Raises the errors of ``ClusterClient``.
    """

    def __init__(
        self,
        cluster: ClusterClient,
        topic: str,
        number: int,
        leader: int,
        *,
        committed: bool = False,
    ) -> None:
        self.position = 0
        self._committed = committed
        self._cluster = cluster
        self._topic = topic
        self._number = number
        self._leader = leader

    def start(self) -> int:
        """The offset of the first record."""
        return self._list_offset(EARLIEST)

    def end(self) -> int:
        """The end offset. With ``committed``, it is the last stable offset."""
        listed = self._list_offset(LATEST, committed=self._committed)
        part = self._glance(listed)
        return max(listed, part.last_stable_offset if self._committed else part.high_watermark)

    def listed_end(self) -> int:
        """The end offset by ListOffsets alone, without waiting for a Fetch."""
        return self._list_offset(LATEST, committed=self._committed)

    def high_watermark(self) -> int:
        """The end offset, including open transactions."""
        listed = self._list_offset(LATEST)
        return max(listed, self._glance(listed).high_watermark)

    def at_time(self, timestamp_ms: int) -> int:
        """The offset of the first record at or after this time, even of an open transaction.

        If there is none, it is the high watermark.
        """
        found = self._list_offset(timestamp_ms)
        return self.high_watermark() if found < 0 else found

    def poll(self) -> Iterator[StoredRecord]:
        """The records of one Fetch, without markers. The broker waits at most half a second.

        Raises ``CorruptBatch`` if a CRC is wrong.
        """
        part = self._fetch(self.position, most=_FETCH_BYTES, wait_ms=_MAX_WAIT_MS)
        if part.error_code:
            raise BrokerError(part.error_code, f"{self._name} at offset {self.position}")
        aborted = _Aborted(part.aborted if self._committed else ())
        for batch in read_sets(part.records):
            if not batch.crc_ok:
                raise CorruptBatch(f"{self._name}: wrong CRC at offset {batch.base_offset}")
            left_out = aborted.has(batch) or batch.is_control
            for record in () if left_out else batch.records():
                if record.offset >= self.position:
                    self.position = record.offset + 1
                    yield record
            self.position = max(self.position, batch.last_offset + 1)

    def read(self, start: int, end: int) -> Iterator[StoredRecord]:
        """The records from offset ``start`` up to, but not including, ``end``."""
        self.position = start
        while self.position < end:
            yield from (record for record in self.poll() if record.offset < end)

    @property
    def _name(self) -> str:
        return f"{self._topic}-{self._number}"

    def _glance(self, listed: int) -> FetchedPartition:
        """The answer to Fetch at the end: ListOffsets of Tansu leaves out the last batch."""
        return self._fetch(listed, most=1, wait_ms=_GLANCE_MS)

    def _list_offset(self, timestamp: int, *, committed: bool = False) -> int:
        question = list_offset(self._topic, self._number, timestamp, committed=committed)
        error_code, offset = self._cluster.ask(question, self._leader)
        if error_code:
            raise BrokerError(error_code, self._name)
        return offset

    def _fetch(self, offset: int, *, most: int, wait_ms: int) -> FetchedPartition:
        question = fetch(
            self._topic,
            self._number,
            offset,
            most=most,
            wait_ms=wait_ms,
            committed=self._committed,
        )
        return self._cluster.ask(question, self._leader)


def readers(
    cluster: ClusterClient, topic: str, wait: LeaderWait = ALL_LEADERS, *, committed: bool = False
) -> dict[int, PartitionReader]:
    """A reader for each partition, by number. Raises the errors of ``ClusterClient.leaders``."""
    return {
        number: PartitionReader(cluster, topic, number, leader, committed=committed)
        for number, leader in cluster.leaders(topic, wait).items()
    }
