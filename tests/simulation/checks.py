"""Checks a finished run: the logs against the results that the application got."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator
from functools import cached_property
from typing import NamedTuple

from kprod.errors import DeliveryTimeoutError
from kprod.records.record_batch import StoredRecord, read_batches
from kprod.types import Persisted, TopicPartition
from tests.simulation.actions import Schedule
from tests.simulation.app import uid_of
from tests.simulation.broker_actions import Disturb
from tests.simulation.configured import CONNECTION_SETUP_MS
from tests.simulation.history import History, Sent
from tests.simulation.interference import HANDSHAKE
from tests.simulation.model.partition_log import PartitionLog, StoredBatch

NO_OFFSET = -1
SLACK = 0.5
RECOVERY = 2.0
LONGEST_SETUP = 30 * 1.2
"""Seconds: the default of socket_connection_setup_timeout_max_ms, and its jitter."""
MANY = 100


class Found(NamedTuple):
    log: PartitionLog
    record: StoredRecord


class Checks:
    def __init__(
        self, schedule: Schedule, history: History, logs: list[PartitionLog], stalled: float
    ) -> None:
        self._schedule = schedule
        self._setup = schedule.setup
        self._stalled = stalled  # seconds without CPU time for the client
        self._keeps_trying = schedule.setup.retries > MANY
        self._history = history
        self._logs = logs
        self._by_uid = {sent.uid: sent for sent in history.accepted}
        self._order = {sent.uid: position for position, sent in enumerate(history.accepted)}
        self._written: dict[PartitionLog, list[tuple[int, int]]] = {}  # producer ids and uids
        self._found: dict[int, list[Found]] = defaultdict(list)

    @cached_property
    def _lost_after_all(self) -> set[int]:
        """Records that an unclean election removed after their acknowledgement.

        A later batch may acknowledge them too: then their callback must have come before.
        """
        promised: list[StoredBatch] = []
        lost_at: dict[int, float] = {}
        for log in self._logs:
            tp = TopicPartition(log.topic, log.partition)
            for when, batch in log.lost:
                if (tp, *_writer(batch)) in self._history.promised:
                    promised.append(batch)
                lost_at |= {_uid(record): when for _, record in _records([batch])}
        reported = {
            sent.uid for sent in self._history.ended if sent.done_at < lost_at.get(sent.uid, 0)
        }
        return reported | {_uid(record) for _, record in _records(promised)}

    def check(self, *, nothing_works: bool) -> None:
        """``nothing_works``: the cluster has rejected the producer permanently."""
        for log in self._logs:
            self._read(log)
        self._completion()
        for sent in self._history.accepted:
            if sent.error is not None:
                self._failure_means_not_stored(sent)
            elif sent.stored is not None and self._setup.acks != 0:
                self._no_loss(sent)
        if self._setup.idempotent:
            self._no_duplicates()
        self._orders()
        self._in_time(nothing_works=nothing_works)

    # The logs ---------------------------------------------------------------------------------

    def _read(self, log: PartitionLog) -> None:
        written = self._written[log] = []
        for producer_id, record in _records(log.batches):
            uid = uid_of(record.value or b"-1|")
            written.append((producer_id, uid))
            self._found[uid].append(Found(log, record))
            sent = self._by_uid.get(uid)
            if sent is None:
                self._violated("I4", f"record {uid}, whose send failed, is in the log")
                continue
            if sent.tp != (log.topic, log.partition):
                self._violated("I8", f"{uid} of {sent.tp} is in {log.topic}-{log.partition}")
            if (sent.key, sent.value, sent.headers) != record[2:]:
                self._violated("I8", f"record {uid} was changed: {sent} {record}")
            if sent.timestamp_ms != record.timestamp:
                self._violated("I9", f"timestamp of {uid}: {record.timestamp}")

    def _violated(self, invariant: str, what: str) -> None:
        self._history.violated(invariant, what)

    # Record by record -------------------------------------------------------------------------

    def _completion(self) -> None:
        for sent in self._history.accepted:
            if sent.done_at < 0 or not sent.future.is_done:
                self._violated("I6", f"record {sent.uid} of {sent.tp} has no outcome")

    def _in_time(self, *, nothing_works: bool) -> None:
        limit = self._setup.delivery_timeout_ms / 1000 + SLACK + self._stalled
        must_work = self._keeps_trying and not nothing_works and not self._setup.is_poor
        recovery = self._setup.request_timeout_ms / 1000 + RECOVERY + self._stalled
        recovery += self._longest_setup()
        for sent in self._history.accepted:
            took = sent.done_at - sent.at
            if took > limit:
                self._violated("I14", f"record {sent.uid} of {sent.tp} ended after {took:.3f} s")
            slow = sent.stored is None or took > recovery
            if sent.probe and recovery < limit and must_work and slow:
                self._violated("I14", f"no fault, but {sent.uid}: {took:.3f} s, {sent.error!r}")
            if self._schedule.gentle and sent.error is not None:
                self._violated("I7", f"record {sent.uid} of {sent.tp} failed: {sent.error!r}")

    def _longest_setup(self) -> float:
        """How long a handshake begun during a fault may last; each failure doubles it (KIP-601)."""
        disturbed = sum(
            action.times
            for action in self._schedule.actions
            if isinstance(action, Disturb) and action.fault.api == HANDSHAKE
        )
        grown = CONNECTION_SETUP_MS / 1000 * 2 ** min(disturbed, 10) * 1.2
        return min(grown, LONGEST_SETUP) if disturbed else 0.0

    def _failure_means_not_stored(self, sent: Sent) -> None:
        if sent.error is None or sent.error.persisted is Persisted.MAYBE:
            return
        if self._found[sent.uid]:
            self._violated("I4", f"record {sent.uid} is in the log after {sent.error!r} (NO)")

    def _no_loss(self, sent: Sent) -> None:
        stored, found = sent.stored, self._found[sent.uid]
        if stored is None or sent.uid in self._lost_after_all:
            return
        offsets = [hit.record.offset for hit in found]
        if not found:
            self._violated("I1", f"record {sent.uid} of {sent.tp} was acknowledged and lost")
        elif stored.offset != NO_OFFSET and stored.offset not in offsets:
            self._violated("I5", f"{sent.uid} is at {offsets}, not at {stored.offset}")
        elif stored.offset == NO_OFFSET and sent.tp not in self._history.doubted:
            self._violated("I5", f"{sent.uid} was acknowledged without an offset")
        if stored.topic_partition != sent.tp or stored.serialized_value_size != len(
            sent.value or b""
        ):
            self._violated("I5", f"{sent.uid} was acknowledged as {stored}")
        if not self._setup.append_time and stored.timestamp != sent.timestamp_ms:
            self._violated("I9", f"{sent.uid} was acknowledged with time {stored.timestamp}")

    def _no_duplicates(self) -> None:
        for uid, found in self._found.items():
            logs = [id(hit.log) for hit in found]
            if len(set(logs)) != len(logs):
                offsets = [hit.record.offset for hit in found]
                self._violated("I2", f"record {uid} is in the log {len(logs)} times: {offsets}")

    # Orders -----------------------------------------------------------------------------------

    def _orders(self) -> None:
        for log, written in self._written.items():
            if log.unclean:  # it accepted any sequence as its first, twice
                continue
            if self._setup.idempotent:
                # A late request of a former producer id has an unknown outcome.
                for producer_id in {producer_id for producer_id, _ in written}:
                    self._in_order(log, [uid for writer, uid in written if writer == producer_id])
            if self._setup.idempotent or (
                self._setup.max_in_flight == 1 and self._setup.acks == -1
            ):
                self._in_order(log, self._first_acknowledged([uid for _, uid in written]))
        self._orders_of_ends()

    def _in_order(self, log: PartitionLog, uids: list[int]) -> None:
        positions = [self._order.get(uid, -1) for uid in uids]
        if positions != sorted(positions):
            self._violated("I3", f"{log.topic}-{log.partition} is out of order: {uids}")

    def _first_acknowledged(self, uids: list[int]) -> list[int]:
        """Without idempotence only the first copies of acknowledged records are ordered."""
        known = (uid for uid in dict.fromkeys(uids) if uid in self._by_uid)
        return [uid for uid in known if self._by_uid[uid].stored is not None]

    def _orders_of_ends(self) -> None:
        """Timeouts come in the order of sending; so do the results of one batch."""
        last: dict[TopicPartition, int] = {}
        previous: Sent | None = None
        for sent in self._history.ended:
            position = self._order.get(sent.uid, -1)
            if isinstance(sent.error, DeliveryTimeoutError):
                if position < last.get(sent.tp, -1):
                    self._violated("I6", f"{sent.uid} of {sent.tp} timed out after a later record")
                last[sent.tp] = position
            if previous is not None and self._reversed(previous, sent):
                self._violated("I6", f"{sent.uid} was reported after {previous.uid}")
            previous = sent

    def _reversed(self, first: Sent, second: Sent) -> bool:
        return _same_batch(first, second) and self._order[second.uid] < self._order[first.uid]


def _records(batches: Iterable[StoredBatch]) -> Iterator[tuple[int, StoredRecord]]:
    for batch in read_batches(b"".join(stored.data for stored in batches)):
        for record in batch.records():
            yield batch.producer_id, record


def _uid(record: StoredRecord) -> int:
    return uid_of(record.value or b"-1|")


def _writer(batch: StoredBatch) -> tuple[int, int, int]:
    header = batch.header
    return header.producer_id, header.producer_epoch, header.base_sequence


def _same_batch(first: Sent, second: Sent) -> bool:
    return first.tp == second.tp and first.error is not None and first.error is second.error
