"""Telling the partitions of a transaction how it ended, each of them once."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from typing import Final, TypeAlias

from kio.schema.errors import ErrorCode

from kprod.broker.transaction_marker import TransactionMarker
from kprod.broker.transactions.transaction import Transaction, TransactionState
from kprod.errors import BrokerError
from kprod.types import TopicPartition

EndInPartition: TypeAlias = Callable[[TopicPartition, TransactionMarker, int], None]
"""Writes a marker into a partition, for clients of some transaction version; ``BrokerError``."""

_PAUSE: Final = 0.2
_GONE: Final = (
    ErrorCode.unknown_topic_or_partition,
    ErrorCode.invalid_producer_epoch,
    ErrorCode.transaction_coordinator_fenced,
)
"""The partition was deleted, or knows of a later transaction: it needs no marker any more."""
_log = logging.getLogger(__name__)


class MarkerWriter:
    """Kafka: TransactionMarkerChannelManager. Thread-safe.

    A partition whose disk fails is asked again until it has its marker.
    """

    def __init__(
        self,
        end_in: EndInPartition,
        complete: Callable[[Transaction], None],
        later: Callable[[float, Callable[[], None]], None],
    ) -> None:
        self._end_in = end_in
        self._complete = complete
        self._later = later
        self._lock = threading.Lock()  # guards the one below
        self._left: dict[str, set[TopicPartition]] = {}

    def write(self, transaction: Transaction, coordinator_epoch: int) -> None:
        """Write all markers of a transaction, and have it completed; what fails is tried later."""
        name = transaction.transactional_id
        with self._lock:
            if name in self._left:
                return
            self._left[name] = set(transaction.partitions)
        self._go_on(transaction, coordinator_epoch)

    def _go_on(self, transaction: Transaction, coordinator_epoch: int) -> None:
        left = self._left[transaction.transactional_id]
        marker = TransactionMarker(
            transaction.producer_id,
            transaction.producer_epoch,
            transaction.state is TransactionState.PREPARE_COMMIT,
            coordinator_epoch,
        )
        left.difference_update(
            [where for where in sorted(left) if self._ends(where, marker, transaction)]
        )
        if left:
            self._later(_PAUSE, lambda: self._go_on(transaction, coordinator_epoch))
            return
        with self._lock:
            # Before the transaction is complete: the next one may end as soon as it is.
            del self._left[transaction.transactional_id]
        self._finish(transaction)

    def _finish(self, transaction: Transaction) -> None:
        try:
            self._complete(transaction)
        except (BrokerError, MemoryError) as error:
            _log.warning("%s could not be completed: %s", transaction.transactional_id, error)
            self._later(_PAUSE, lambda: self._finish(transaction))

    def _ends(
        self, where: TopicPartition, marker: TransactionMarker, transaction: Transaction
    ) -> bool:
        try:
            self._end_in(where, marker, transaction.client_version)
        except BrokerError as error:
            _log.warning("%s has no marker of %s: %s", where, transaction.transactional_id, error)
            return error.code in _GONE
        except MemoryError:
            return False
        return True
