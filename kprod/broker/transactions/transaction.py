"""The assignment of producer ids, and the state of each transactional id."""

from __future__ import annotations

import enum
import threading
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

from kprod.broker.log.checkpoint_files import StorageError, replace_file
from kprod.broker.log.producer_state import HIGHEST_EPOCH
from kprod.errors import ConfigError
from kprod.types import TopicPartition

_BLOCK: Final = 1000
_VERSION: Final = "0"


class ProducerIds:
    """Assigns producer ids, none of them twice. Thread-safe.

    Ids are assigned from blocks, and a block is recorded in a file before its first id is used. A
    restart continues with the next block, so the rest of the current block stays unused. Kafka
    records such blocks in its cluster metadata (KIP-730). The format of this file is kprod's own.
    """

    def __init__(self, path: Path) -> None:
        """Read the file at ``path``. Raises ``StorageError`` if it has another version."""
        self._path = path
        self._lock = threading.Lock()  # guards the two below
        self._next = self._block_end = self._read()

    def _read(self) -> int:
        if not self._path.exists():
            return 0
        version, _, block = self._path.read_text(encoding="ascii").partition("\n")
        if version != _VERSION or not block.strip().isdigit():
            raise StorageError(f"{self._path} is not a file of producer ids of this version")
        return int(block)

    def take(self) -> int:
        """Return the next id. Raises ``OSError`` if a new block cannot be recorded."""
        with self._lock:
            if self._next == self._block_end:
                end = self._block_end + _BLOCK
                replace_file(self._path, f"{_VERSION}\n{end}\n".encode())
                self._block_end = end
            self._next += 1
            return self._next - 1


HIGHEST_VERSION = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class TransactionConfig:
    """Options of transactions.

    The defaults are Kafka's, except that ``__transaction_state`` has only one partition.

    ``transaction_version`` is the level of the Kafka feature ``transaction.version``. With 2, the
    producer gets a new epoch when a transaction ends, and the first batch for a partition adds the
    partition to the transaction (KIP-890). With 1 or 0, transactions work as with brokers before
    Kafka 4.0.

    ``marker_delay_ms`` is the time between the response to EndTxn and the transaction markers.
    During that time the producer's next transaction gets CONCURRENT_TRANSACTIONS (51). With 0 the
    markers are written before the response.

    ``fences_late_commits`` is about commits that arrive after the coordinator has aborted the
    transaction, and only about producers that use transaction version 2. If it is true, such a
    commit gets PRODUCER_FENCED, as from brokers that contain KAFKA-20785. If it is false, the
    commit gets INVALID_TXN_STATE, as from older brokers.
    """

    transaction_version: int = HIGHEST_VERSION
    max_timeout_ms: int = 900_000
    transactional_id_expiration_ms: int = 7 * 24 * 3_600_000
    state_topic_partitions: int = 1
    marker_delay_ms: int = 0
    fences_late_commits: bool = False

    def __post_init__(self) -> None:
        check_version(self.transaction_version)


def check_version(version: int) -> None:
    """Raise ``ConfigError`` for an unknown level of ``transaction.version``."""
    if not 0 <= version <= HIGHEST_VERSION:
        raise ConfigError(f"transaction_version={version}: there are 0, 1 and {HIGHEST_VERSION}")


NO_PRODUCER_ID: Final = -1
NO_EPOCH: Final = -1
NOT_STARTED: Final = -1
LAST_EPOCH: Final = 2**15 - 2
"""The last epoch that a producer gets; the next one is reserved for fencing it."""


class TransactionState(enum.IntEnum):
    """The states of a transaction. Their numbers are those in ``__transaction_state``."""

    EMPTY = 0
    ONGOING = 1
    PREPARE_COMMIT = 2
    PREPARE_ABORT = 3
    COMPLETE_COMMIT = 4
    COMPLETE_ABORT = 5
    DEAD = 6
    PREPARE_EPOCH_FENCE = 7

    @property
    def spelled(self) -> str:
        """The name as in Kafka's DescribeTransactions, for example ``PrepareCommit``."""
        return "".join(word.capitalize() for word in self.name.split("_"))


_S = TransactionState
LEGAL: Final[Mapping[TransactionState, frozenset[TransactionState]]] = {
    # from: to                    by
    _S.EMPTY: frozenset(
        {
            _S.EMPTY,  # InitProducerId
            _S.ONGOING,  # AddPartitionsToTxn, AddOffsetsToTxn, Produce 12, TxnOffsetCommit 5
            _S.PREPARE_ABORT,  # EndTxn 5: the producer does not know whether anything arrived
        }
    ),
    _S.ONGOING: frozenset(
        {
            _S.ONGOING,  # one more partition
            _S.PREPARE_COMMIT,  # EndTxn
            _S.PREPARE_ABORT,  # EndTxn, a time-out, InitProducerId of the next producer
        }
    ),
    _S.PREPARE_COMMIT: frozenset({_S.COMPLETE_COMMIT}),  # every marker is written
    _S.PREPARE_ABORT: frozenset({_S.COMPLETE_ABORT}),
    _S.COMPLETE_COMMIT: frozenset({_S.EMPTY, _S.ONGOING, _S.PREPARE_ABORT}),  # as from EMPTY
    _S.COMPLETE_ABORT: frozenset({_S.EMPTY, _S.ONGOING, _S.PREPARE_ABORT}),
    # Kafka has these two in memory only, while it writes; here they are never seen.
    _S.DEAD: frozenset(),
    _S.PREPARE_EPOCH_FENCE: frozenset(),
}
"""The states that may follow each state, and the requests that lead to them."""

PREPARED: Final = frozenset({_S.PREPARE_COMMIT, _S.PREPARE_ABORT})
"""States in which the end of the transaction is decided, but markers may be missing."""


@dataclass(frozen=True, slots=True)
class Transaction:
    """The state of one transactional id (Kafka: TransactionMetadata). Immutable.

    ``last_epoch`` is the epoch before the current one, if a producer with that epoch may repeat its
    last request (KIP-360, KIP-890). ``next_producer_id`` replaces a producer id whose epochs are
    used up, as soon as the transaction is complete; ``previous_producer_id`` is the id that was
    replaced. ``client_version`` is the transaction version of the request that ended the
    transaction. Times are milliseconds since 1970. In all fields, -1 means none.
    """

    transactional_id: str
    producer_id: int
    producer_epoch: int
    timeout_ms: int
    state: TransactionState = TransactionState.EMPTY
    partitions: frozenset[TopicPartition] = frozenset()
    started_ms: int = NOT_STARTED
    updated_ms: int = -1
    last_epoch: int = NO_EPOCH
    previous_producer_id: int = NO_PRODUCER_ID
    next_producer_id: int = NO_PRODUCER_ID
    client_version: int = 0

    @property
    def is_open(self) -> bool:
        """Whether a transaction has begun and its end is not decided yet."""
        return self.state is TransactionState.ONGOING

    @property
    def is_exhausted(self) -> bool:
        """Whether the producer id has no epoch left that a producer could get."""
        return self.producer_epoch >= LAST_EPOCH

    @property
    def deadline_ms(self) -> int:
        """When the open transaction times out, in milliseconds since 1970."""
        return self.started_ms + self.timeout_ms

    def becomes(self, state: TransactionState, now_ms: int, **changes: Any) -> Transaction:
        """Return a copy with another ``state`` and other ``changes``.

        Raises ``ValueError`` if ``state`` may not follow the current state or the epoch is too
        large.
        """
        if state not in LEGAL[self.state]:
            raise ValueError(f"{self.transactional_id}: {self.state.name} -> {state.name}")
        changed = replace(self, state=state, updated_ms=now_ms, **changes)
        if changed.producer_epoch > HIGHEST_EPOCH:
            raise ValueError(f"{self.transactional_id}: epoch {changed.producer_epoch}")
        return changed
