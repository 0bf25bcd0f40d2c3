"""Coordinates transactions: guards their states, runs timers, writes the state topic."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Collection
from typing import Final, TypeAlias

from kio.schema.errors import ErrorCode

from kprod.broker.java_hash import java_hash
from kprod.broker.log.partition_log import PartitionLog
from kprod.broker.purgatory import Appointment, Timer
from kprod.broker.records.batch_writer import TransactionMarker
from kprod.broker.transactions import transaction_rules as rules
from kprod.broker.transactions.transaction import (
    NO_EPOCH,
    PREPARED,
    ProducerIds,
    Transaction,
    TransactionConfig,
    TransactionState,
    check_version,
)
from kprod.broker.transactions.transaction_rules import ProducerIdentity
from kprod.broker.transactions.transaction_topic import read_transactions, write_transaction
from kprod.clock import Clock
from kprod.errors import BrokerError
from kprod.types import TopicPartition

EndInPartition: TypeAlias = Callable[[TopicPartition, TransactionMarker, int], None]
"""Writes a marker of some transaction version to a partition. Raises ``BrokerError``."""

_PAUSE: Final = 0.2
_GONE: Final = (
    ErrorCode.unknown_topic_or_partition,
    ErrorCode.invalid_producer_epoch,
    ErrorCode.transaction_coordinator_fenced,
)
"""The partition was deleted, or has a later transaction: it no longer needs the marker."""
_log = logging.getLogger(__name__)


_MILLISECONDS = 1000


class TransactionCoordinator:
    """All transactional ids of one cluster (Kafka: TransactionCoordinator). Thread-safe.

    One lock guards the states of all transactional ids. The lock is held during writes to the state
    topic, ``__transaction_state``, so that its records are in the order of the changes. A state is
    valid once it is written. Markers are written without the lock (Kafka:
    TransactionMarkerChannelManager). A transaction stays in one of the ``PREPARED`` states until
    all its markers are written, even after failures and restarts.
    """

    def __init__(
        self,
        config: TransactionConfig,
        state_log: Callable[[int], PartitionLog],
        end_in: EndInPartition,
        producer_ids: ProducerIds,
        timer: Timer,
        submit: Callable[[Callable[[], None]], None],
        clock: Clock,
    ) -> None:
        """``state_log`` returns the log of a partition of the state topic, given its number.

        The function creates the topic if necessary, and raises ``BrokerError`` 56 if the disk
        fails. ``end_in`` writes a transaction's marker to one partition.
        """
        self._config = config
        self._state_log = state_log
        self._producer_ids = producer_ids
        self._timer = timer
        self._submit = submit
        self._clock = clock
        self._end_in = end_in
        self._lock = threading.Lock()  # guards the rest
        self._transactions: dict[str, Transaction] = {}
        self._deadlines: dict[str, Appointment] = {}
        self._markers_left: dict[str, set[TopicPartition]] = {}  # by transactional id
        self.version = config.transaction_version
        self.features_epoch = clock.wall_ms()  # grows with each version, over restarts as well
        self._closed = False

    def set_version(self, version: int) -> None:
        """Use another level of ``transaction.version`` from now on, as after an upgrade.

        Raises ``ConfigError`` for an unknown level.
        """
        check_version(version)
        with self._lock:
            self.version = version
            self.features_epoch = max(self.features_epoch + 1, self._clock.wall_ms())

    def partition_of(self, transactional_id: str) -> int:
        """Return the number of the partition of the state topic that stores a transactional id."""
        return java_hash(transactional_id) % self._config.state_topic_partitions

    def load(self, log: PartitionLog) -> None:
        """Load a partition of the state topic, and finish transactions whose end is decided."""
        found = read_transactions(log)
        with self._lock:
            self._transactions.update(found)
            for transaction in found.values():
                self._schedule(transaction)
        for transaction in found.values():
            if transaction.state in PREPARED:
                self._write_markers(transaction)

    # What producers ask ----------------------------------------------------------------------

    def initialize(
        self, transactional_id: str, timeout_ms: int, present: ProducerIdentity | None = None
    ) -> ProducerIdentity:
        """Handle InitProducerId; return the producer id and the epoch.

        If a transaction is open, aborts it and raises ``BrokerError`` 51, after which the producer
        repeats the request. Raises -1 if the transaction cannot be aborted (see ``rules.fence``).

        Other errors are 42 (empty transactional id), 50 (invalid time-out), 51 (the last
        transaction is ending), 56 (disk failure) and 90 (fenced producer).
        """
        if not transactional_id:
            raise BrokerError(ErrorCode.invalid_request, "the transactional id is empty")
        if not 0 < timeout_ms <= self._config.max_timeout_ms:
            raise BrokerError(
                ErrorCode.invalid_transaction_timeout,
                f"transaction.timeout.ms={timeout_ms} is not in 1..{self._config.max_timeout_ms}",
            )
        with self._lock:
            found = self._transactions.get(transactional_id)
            if found is None:
                found = Transaction(transactional_id, self.take_id(), NO_EPOCH, timeout_ms)
            if not found.is_open:
                now_ms = self._clock.wall_ms()
                ready = rules.initialize(found, timeout_ms, present, now_ms, self.take_id)
                self._store(ready)
                return ProducerIdentity(ready.producer_id, ready.producer_epoch)
            rules.check_present(found, present)
            fenced = rules.fence(found, self.version, self._clock.wall_ms())
            self._store(fenced)
        self._write_markers(fenced)
        raise BrokerError(
            ErrorCode.concurrent_transactions,
            f"the open transaction of {transactional_id!r} is aborted first",
        )

    def take_id(self) -> int:
        """Return a new producer id. Raises ``BrokerError`` 56 if the disk fails."""
        try:
            return self._producer_ids.take()
        except OSError as error:
            raise BrokerError(ErrorCode.kafka_storage_error, str(error)) from error

    def add_partitions(
        self,
        transactional_id: str,
        identity: ProducerIdentity,
        partitions: Collection[TopicPartition],
    ) -> None:
        """Add partitions to a transaction.

        Raises ``BrokerError`` 42 (empty transactional id), 49 (another producer id), 51 (the last
        transaction is ending), 56 (disk failure) or 90 (another epoch).
        """
        with self._lock:
            found = self._find(transactional_id, identity)
            added = rules.add_partitions(found, identity, partitions, self._clock.wall_ms())
            if added is not found:
                self._store(added)

    def verify(
        self, transactional_id: str, identity: ProducerIdentity, where: TopicPartition
    ) -> None:
        """Raise ``BrokerError`` 120 unless the partition is part of the transaction.

        Also raises 42 (empty transactional id), 49 (another producer id), 51 (the transaction is
        ending) or 90 (another epoch).
        """
        with self._lock:
            rules.verify(self._find(transactional_id, identity), identity, where)

    def end(
        self,
        transactional_id: str,
        identity: ProducerIdentity,
        committed: bool,
        client_version: int,
    ) -> ProducerIdentity:
        """Handle EndTxn; return the id and epoch for the producer's next transaction.

        Raises ``BrokerError`` 42 (empty transactional id), 48 (no such end is possible), 49
        (another producer id), 51 (the transaction is ending), 56 (disk failure) or 90 (another
        epoch).
        """
        with self._lock:
            found = self._find(transactional_id, identity)
            ended = rules.end(
                found,
                identity,
                committed,
                client_version,
                self._clock.wall_ms(),
                self.take_id,
                fences_late_commits=self._config.fences_late_commits,
            )
            if ended is not found:
                self._store(ended)
        if ended is not found:
            self._write_markers(ended)
        return rules.identity_after(ended)

    def _find(self, transactional_id: str, identity: ProducerIdentity) -> Transaction:
        if not transactional_id:
            raise BrokerError(ErrorCode.invalid_request, "the transactional id is empty")
        found = self._transactions.get(transactional_id)
        if found is None:
            raise rules.unmapped(transactional_id, identity)
        return found

    # State -----------------------------------------------------------------------------------

    def _store(self, transaction: Transaction) -> None:
        self._write(transaction.transactional_id, transaction)
        self._transactions[transaction.transactional_id] = transaction
        self._schedule(transaction)

    def _write(self, name: str, transaction: Transaction | None) -> None:
        log = self._state_log(self.partition_of(name))
        write_transaction(log, name, transaction, self.version, self._clock.wall_ms())

    def _write_markers(self, transaction: Transaction) -> None:
        """Write all markers of a transaction, and then complete it. Failures are retried later."""
        log = self._state_log(self.partition_of(transaction.transactional_id))
        marker = TransactionMarker(
            transaction.producer_id,
            transaction.producer_epoch,
            transaction.state is TransactionState.PREPARE_COMMIT,
            log.leader_epoch,
        )
        delay_ms = self._config.marker_delay_ms
        if delay_ms:
            self._later(delay_ms / _MILLISECONDS, lambda: self._begin_markers(transaction, marker))
        else:
            self._begin_markers(transaction, marker)

    def _begin_markers(self, transaction: Transaction, marker: TransactionMarker) -> None:
        name = transaction.transactional_id
        with self._lock:
            if name in self._markers_left:
                return
            self._markers_left[name] = set(transaction.partitions)
        self._go_on(transaction, marker)

    def _go_on(self, transaction: Transaction, marker: TransactionMarker) -> None:
        """Write the missing markers. Once every partition has one, complete the transaction.

        Until then, this method is called again after a pause.
        """
        left = self._markers_left[transaction.transactional_id]
        left.difference_update(
            [where for where in sorted(left) if self._ends(where, marker, transaction)]
        )
        if left:
            self._later(_PAUSE, lambda: self._go_on(transaction, marker))
            return
        with self._lock:
            # Before the transaction is complete: the next one may end as soon as it is.
            del self._markers_left[transaction.transactional_id]
        self._complete(transaction)

    def _ends(
        self, where: TopicPartition, marker: TransactionMarker, transaction: Transaction
    ) -> bool:
        try:
            self._end_in(where, marker, transaction.client_version)
        except BrokerError as error:
            _log.warning("%s has no marker of %r: %s", where, transaction.transactional_id, error)
            return error.code in _GONE
        return True

    def _complete(self, transaction: Transaction) -> None:
        """Store that the transaction is complete, because every partition has its marker."""
        name = transaction.transactional_id
        try:
            with self._lock:
                if self._transactions.get(name) is transaction:
                    self._store(rules.complete(transaction, self._clock.wall_ms()))
        except BrokerError as error:
            _log.warning("the transaction of %r could not be completed: %s", name, error)
            self._later(_PAUSE, lambda: self._complete(transaction))

    def _later(self, seconds: float, act: Callable[[], None]) -> None:
        if not self._closed:
            self._timer.after(seconds, lambda: self._submit(act))

    # Time ------------------------------------------------------------------------------------

    def _schedule(self, transaction: Transaction) -> None:
        transactional_id = transaction.transactional_id
        present = self._deadlines.get(transactional_id)
        if not transaction.is_open:
            if present is not None:
                self._deadlines.pop(transactional_id).cancel()
        elif present is None and not self._closed:
            left_ms = transaction.deadline_ms - self._clock.wall_ms()
            self._deadlines[transactional_id] = self._timer.after(
                max(left_ms, 0) / _MILLISECONDS,
                lambda: self._submit(lambda: self._time_out(transactional_id)),
            )

    def _time_out(self, transactional_id: str) -> None:
        with self._lock:
            self._deadlines.pop(transactional_id, None)
            found = self._transactions.get(transactional_id)
            if found is None or not found.is_open:
                return
            if found.deadline_ms > self._clock.wall_ms():
                self._schedule(found)
                return
            fenced = self._abort(found)
        if fenced is not None:
            self._write_markers(fenced)

    def _abort(self, transaction: Transaction) -> Transaction | None:
        """Abort an open transaction and return its new state; None if it cannot be aborted."""
        name = transaction.transactional_id
        try:
            fenced = rules.fence(transaction, self.version, self._clock.wall_ms())
            self._store(fenced)
        except BrokerError as error:
            _log.warning("the transaction of %r could not be aborted: %s", name, error)
            if error.code == ErrorCode.kafka_storage_error:
                self._later(1.0, lambda: self._time_out(name))
            return None
        _log.info("the transaction of %r was aborted: it was open for too long", name)
        return fenced

    def time_out_all(self) -> None:
        """Abort every open transaction as if it had timed out."""
        with self._lock:
            open_ones = [t for t in self._transactions.values() if t.is_open]
            fenced = [self._abort(each) for each in open_ones]
        for each in fenced:
            if each is not None:
                self._write_markers(each)

    def expire_ids(self) -> None:
        """Forget transactional ids that have long been unused.

        Raises ``BrokerError`` 56 if the disk fails.
        """
        oldest = self._clock.wall_ms() - self._config.transactional_id_expiration_ms
        with self._lock:
            for name, found in list(self._transactions.items()):
                in_use = found.is_open or found.state in PREPARED
                if not in_use and found.updated_ms <= oldest:
                    self._write(name, None)
                    del self._transactions[name]

    # Administration --------------------------------------------------------------------------

    def transactions(self) -> list[Transaction]:
        """Return the states of all transactional ids, sorted by id."""
        with self._lock:
            return [found for _, found in sorted(self._transactions.items())]

    def find(self, transactional_id: str) -> Transaction | None:
        """Return the state of a transactional id; None if it is unknown."""
        return self._transactions.get(transactional_id)

    def close(self) -> None:
        """Ignore time-outs from now on, and do not retry failed writes of markers."""
        self._closed = True
