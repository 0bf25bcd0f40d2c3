"""Readers of committed records: what they saw once, they have seen for good."""

from __future__ import annotations

from collections.abc import Callable

from kprod.records.record_batch import read_batches
from tests.simulation.app import uid_of
from tests.simulation.exactly_once.marked_log import MarkedLog
from tests.simulation.model.partition_log import PartitionLog, StoredBatch


class Readers:
    """One for each partition, that reads on whenever ``look`` is called.

    ``seen`` has the uids of the records in the order in which a reader came by them.
    """

    def __init__(self, logs: list[PartitionLog], violated: Callable[[str], None]) -> None:
        self.seen: dict[PartitionLog, list[int]] = {}
        self._logs = logs
        self._violated = violated
        self._uids: dict[bytes, list[int]] = {}  # of a batch

    def look(self) -> None:
        for log in self._logs:
            if not isinstance(log, MarkedLog):
                continue
            now = [uid for batch in log.committed_batches() for uid in self._read(batch)]
            before = self.seen.get(log, [])
            if now[: len(before)] != before:
                name = f"{log.topic}-{log.partition}"
                self._violated(f"a reader of {name} saw {before}, another one sees {now}")
            self.seen[log] = now

    def _read(self, batch: StoredBatch) -> list[int]:
        known = self._uids.get(batch.data)
        if known is None:
            known = self._uids[batch.data] = [
                uid_of(record.value or b"-1|")
                for stored in read_batches(batch.data)
                for record in stored.records()
            ]
        return known
