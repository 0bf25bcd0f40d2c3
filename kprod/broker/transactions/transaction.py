"""One transactional id: whose it is, and how far its present transaction has come."""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

from kprod.types import TopicPartition

NO_PRODUCER_ID: Final = -1
NO_EPOCH: Final = -1
NOT_STARTED: Final = -1
LAST_EPOCH: Final = 2**15 - 2
"""The last one a producer gets: one more is left to fence it with."""
HIGHEST_EPOCH: Final = 2**15 - 1
"""That one more, beyond which neither protocol nor disk has any.

A producer gets it nevertheless if it was fenced by a time-out and repeats its abort (KIP-890).
"""


class TransactionState(enum.IntEnum):
    """Kafka's numbers, as they are on disk."""

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
        """Kafka's name, as DescribeTransactions tells it."""
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
"""What may become of a transaction, and which request brings it about."""

PREPARED: Final = frozenset({_S.PREPARE_COMMIT, _S.PREPARE_ABORT})
"""It is decided how the transaction ends; not all partitions know that yet."""


@dataclass(frozen=True, slots=True)
class Transaction:
    """The state of one transactional id (Kafka: TransactionMetadata). Immutable.

    ``last_epoch`` is the one before, if its producer itself asked for another (KIP-360);
    ``previous_producer_id`` and ``next_producer_id`` are for the time when the epochs of an id are
    used up. ``client_version`` is the transaction version of the request that ended it. Times are
    milliseconds since the epoch; -1 stands for none everywhere.
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
    def is_exhausted(self) -> bool:
        """Whether the producer id has no further epoch to give away."""
        return self.producer_epoch >= LAST_EPOCH

    @property
    def deadline_ms(self) -> int:
        """When an open transaction has taken too long."""
        return self.started_ms + self.timeout_ms

    def becomes(self, state: TransactionState, now_ms: int, **changes: Any) -> Transaction:
        """The next state. ``ValueError`` for one that ``LEGAL`` does not have, or no such epoch."""
        if state not in LEGAL[self.state]:
            raise ValueError(f"{self.transactional_id}: {self.state.name} -> {state.name}")
        changed = replace(self, state=state, updated_ms=now_ms, **changes)
        if changed.producer_epoch > HIGHEST_EPOCH:
            raise ValueError(f"{self.transactional_id}: epoch {changed.producer_epoch}")
        return changed
