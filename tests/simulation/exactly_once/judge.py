"""Judges one run after its end: whole transactions or nothing, and offsets with them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

from kprod.records.record_batch import read_batches
from tests.simulation.app import uid_of
from tests.simulation.exactly_once.group import Group
from tests.simulation.exactly_once.marked_log import MarkedLog
from tests.simulation.exactly_once.plan import ABORTED, COMMITTED, OPEN, Told
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


class Judge:
    """One check per promise; each reports what it finds to ``violated``."""

    def __init__(
        self, told: list[Told], readers: Readers, group: Group, violated: Callable[[str], None]
    ) -> None:
        self._told = told
        self._readers = readers
        self._group = group
        self._violated = violated
        self._seen: Counter[int] = Counter()
        for uids in readers.seen.values():
            self._seen.update(uids)

    def check(self) -> None:
        for told in self._told:
            self._whole_or_nothing(told)
            self._offsets(told)
            self._outcomes(told)
        self._nobody_elses()
        for log, uids in self._readers.seen.items():
            self._in_order(log, uids)
            self._nothing_left_open(log)

    def _whole_or_nothing(self, told: Told) -> None:
        counts = {self._seen[uid] for uid in told.uids}
        name = f"transaction {told.number} of producer {told.producer}, {told.fate}"
        if told.fate == OPEN:
            self._violated(f"{name}: nobody was told how it ended")
        if max(counts, default=0) > 1:
            self._violated(f"{name}: a record of it is there twice")
        if len(counts) > 1:
            self._violated(f"{name}: parts of it are there")
        if told.fate == COMMITTED and 0 in counts:
            self._violated(f"{name}: a record of it is not there")
        if told.fate == ABORTED and counts - {0}:
            self._violated(f"{name}: a record of it is there")

    def _offsets(self, told: Told) -> None:
        """They move if the records are visible; what was aborted never moves them."""
        if told.offset is None:
            return
        moved = told.offset in self._group.committed
        visible = any(self._seen[uid] for uid in told.uids)
        name = f"the offset of transaction {told.number}, {told.fate}"
        if told.fate in (COMMITTED, ABORTED) and moved is not (told.fate == COMMITTED):
            self._violated(f"{name}: moved is {moved}")
        elif told.uids and moved is not visible:
            self._violated(f"{name}: moved is {moved}, though visible is {visible}")

    def _outcomes(self, told: Told) -> None:
        """Of what is committed every record was acknowledged, where it is."""
        for sent in told.sent:
            if told.fate == COMMITTED and sent.stored is None:
                self._violated(f"{told.number} was committed, but {sent.uid}: {sent.error!r}")

    def _nobody_elses(self) -> None:
        known = {uid for told in self._told for uid in told.uids}
        strangers = sorted(self._seen.keys() - known)
        if strangers:
            self._violated(f"records {strangers}, whose send failed, are there")

    def _in_order(self, log: PartitionLog, uids: list[int]) -> None:
        """Uids grow with the time of sending, and a producer's transactions follow each other."""
        if uids != sorted(uids):
            self._violated(f"{log.topic}-{log.partition} holds {uids}")

    def _nothing_left_open(self, log: PartitionLog) -> None:
        if isinstance(log, MarkedLog) and log.open_since():
            self._violated(f"{log.topic}-{log.partition}: a transaction is open for ever")
