"""Judges one run after its end: whole transactions or nothing, and offsets with them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection

from kprod.broker.log.partition_log import PartitionLog
from kprod.types import TopicPartition
from tests.simulation.app import uid_of
from tests.simulation.exactly_once.plan import ABORTED, COMMITTED, OPEN, Told


class Readers:
    """One of committed records for each partition, that reads on whenever ``look`` is called.

    ``seen`` has the uids of the records in the order in which a reader came by them.
    """

    def __init__(self, logs: list[PartitionLog], violated: Callable[[str], None]) -> None:
        self.seen: dict[PartitionLog, list[int]] = {log: [] for log in logs}
        self._violated = violated
        self._uids: dict[tuple[TopicPartition, int], list[int]] = {}  # by where a batch begins

    def look(self) -> None:
        for log, before in self.seen.items():
            now: list[int] = []
            for batch in log.batches(committed=True):
                place = log.where, batch.base_offset
                if place not in self._uids:
                    records = () if batch.is_control else batch.records()
                    self._uids[place] = [uid_of(record.value or b"-1|") for record in records]
                now += self._uids[place]
            if now[: len(before)] != before:
                self._violated(f"a reader of {log.where} saw {before}, another one sees {now}")
            self.seen[log] = now


class Judge:
    """One check per promise; each reports what it finds to ``violated``.

    ``moved`` are the places whose offset the group has committed.
    """

    def __init__(
        self,
        told: list[Told],
        readers: Readers,
        moved: Collection[TopicPartition],
        violated: Callable[[str], None],
    ) -> None:
        self._told = told
        self._readers = readers
        self._moved = moved
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
            if uids != sorted(uids):  # they grow with the time of sending
                self._violated(f"{log.where} holds {uids}")
            if log.last_stable_offset != log.end_offset:
                self._violated(f"{log.where}: a transaction is open for ever")

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
        moved = told.offset in self._moved
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
