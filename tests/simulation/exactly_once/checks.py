"""Checks a finished run: transactions are atomic, their offsets included."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection

from kprod.broker.log.partition_log import PartitionLog
from kprod.types import TopicPartition
from tests.simulation.app import uid_of
from tests.simulation.exactly_once.plan import ABORTED, COMMITTED, OPEN, AppTransaction


class Readers:
    """A read_committed reader for each partition; ``poll`` reads on.

    ``seen`` has the uids of the records in the order of reading.
    """

    def __init__(self, logs: list[PartitionLog], violated: Callable[[str], None]) -> None:
        self.seen: dict[PartitionLog, list[int]] = {log: [] for log in logs}
        self._violated = violated
        self._uids: dict[tuple[TopicPartition, int], list[int]] = {}  # by partition and base offset

    def poll(self) -> None:
        for log, before in self.seen.items():
            now: list[int] = []
            for batch in log.batches(committed=True):
                key = log.where, batch.base_offset
                if key not in self._uids:
                    records = () if batch.is_control else batch.records()
                    self._uids[key] = [uid_of(record.value or b"-1|") for record in records]
                now += self._uids[key]
            if now[: len(before)] != before:
                self._violated(f"a reader of {log.where} saw {before}, a later one {now}")
            self.seen[log] = now


class Checks:
    """One check per guarantee. ``moved``: the partitions with a committed offset."""

    def __init__(
        self,
        transactions: list[AppTransaction],
        readers: Readers,
        moved: Collection[TopicPartition],
        violated: Callable[[str], None],
    ) -> None:
        self._transactions = transactions
        self._readers = readers
        self._moved = moved
        self._violated = violated
        self._seen: Counter[int] = Counter()
        for uids in readers.seen.values():
            self._seen.update(uids)

    def check(self) -> None:
        for tx in self._transactions:
            self._atomic(tx)
            self._offsets(tx)
            self._outcomes(tx)
        self._no_unknown_records()
        for log, uids in self._readers.seen.items():
            if uids != sorted(uids):  # in the order of sending
                self._violated(f"{log.where} is out of order: {uids}")
            if log.last_stable_offset != log.end_offset:
                self._violated(f"{log.where}: a transaction never ended")

    def _atomic(self, tx: AppTransaction) -> None:
        counts = {self._seen[uid] for uid in tx.uids}
        name = f"transaction {tx.number} of producer {tx.producer}, {tx.fate}"
        if tx.fate == OPEN:
            self._violated(f"{name}: its outcome was never reported")
        if max(counts, default=0) > 1:
            self._violated(f"{name}: a record of it is visible twice")
        if len(counts) > 1:
            self._violated(f"{name}: only parts of it are visible")
        if tx.fate == COMMITTED and 0 in counts:
            self._violated(f"{name}: a record of it is not visible")
        if tx.fate == ABORTED and counts - {0}:
            self._violated(f"{name}: a record of it is visible")

    def _offsets(self, tx: AppTransaction) -> None:
        """They are committed exactly if the records are visible."""
        if tx.offset is None:
            return
        moved = tx.offset in self._moved
        visible = any(self._seen[uid] for uid in tx.uids)
        name = f"the offset of transaction {tx.number}, {tx.fate}"
        if tx.fate in (COMMITTED, ABORTED) and moved is not (tx.fate == COMMITTED):
            self._violated(f"{name}: committed is {moved}")
        elif tx.uids and moved is not visible:
            self._violated(f"{name}: committed is {moved}, visible is {visible}")

    def _outcomes(self, tx: AppTransaction) -> None:
        """Every record of a committed transaction was acknowledged."""
        for sent in tx.sent:
            if tx.fate == COMMITTED and sent.stored is None:
                self._violated(f"{tx.number} was committed, but {sent.uid}: {sent.error!r}")

    def _no_unknown_records(self) -> None:
        known = {uid for tx in self._transactions for uid in tx.uids}
        unknown = sorted(self._seen.keys() - known)
        if unknown:
            self._violated(f"records {unknown}, whose send failed, are visible")
