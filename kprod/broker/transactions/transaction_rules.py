"""The coordinator's rules for how requests change a transaction. No I/O, no clock.

Each function takes the current state and returns the next one, or the same object if nothing must
be written. For a request that is not allowed, it raises ``BrokerError``. The docstrings mention
these codes: 48 INVALID_TXN_STATE, 49 INVALID_PRODUCER_ID_MAPPING, 51 CONCURRENT_TRANSACTIONS, 90
PRODUCER_FENCED and 120 TRANSACTION_ABORTABLE. Kafka: TransactionCoordinator, TransactionMetadata;
KIP-98, KIP-360, KIP-588 and KIP-890.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Final, NamedTuple

from kio.schema.errors import ErrorCode

from kprod.broker.log.producer_state import HIGHEST_EPOCH
from kprod.broker.transactions.transaction import (
    LAST_EPOCH,
    NO_EPOCH,
    NO_PRODUCER_ID,
    NOT_STARTED,
    PREPARED,
    Transaction,
    TransactionState,
)
from kprod.errors import BrokerError
from kprod.types import TopicPartition

_BUMPING_VERSION: Final = 2

TakeId = Callable[[], int]
"""Returns a new producer id. Raises ``BrokerError`` 56."""


class ProducerIdentity(NamedTuple):
    """A producer id and its epoch."""

    producer_id: int
    producer_epoch: int


def initialize(
    transaction: Transaction,
    timeout_ms: int,
    present: ProducerIdentity | None,
    now_ms: int,
    take_id: TakeId,
) -> Transaction:
    """InitProducerId: assign the next epoch.

    ``present`` is the identity of a producer that asks for a new epoch (KIP-360); None for a new
    producer. An open transaction must be ended by ``fence`` first. Raises ``BrokerError`` 51 while
    the last transaction is ending, and 90 for a fenced producer.
    """
    if transaction.state in PREPARED:
        raise _wait(transaction)
    check_present(transaction, present)
    same = present is None or present.producer_epoch == transaction.producer_epoch
    if transaction.is_exhausted and same:
        producer_id, epoch = take_id(), 0
        last = NO_EPOCH if present is None else transaction.producer_epoch
    else:
        producer_id = transaction.producer_id
        epoch, last = _next_epoch(transaction, present)
    changed = producer_id != transaction.producer_id
    return transaction.becomes(
        TransactionState.EMPTY,
        now_ms,
        producer_id=producer_id,
        producer_epoch=epoch,
        last_epoch=last,
        previous_producer_id=(
            transaction.producer_id if changed else transaction.previous_producer_id
        ),
        next_producer_id=NO_PRODUCER_ID,
        timeout_ms=timeout_ms,
        partitions=frozenset(),
        started_ms=NOT_STARTED,
    )


def check_present(transaction: Transaction, present: ProducerIdentity | None) -> None:
    """Raise ``BrokerError`` 90 unless ``present`` has the current producer id.

    A producer that has used its last epoch may also have the previous id, because the response with
    the new id may have been lost.
    """
    if present is None or transaction.producer_epoch == NO_EPOCH:
        return
    if present.producer_id == transaction.producer_id:
        return
    was_exhausted = present.producer_epoch >= LAST_EPOCH
    if present.producer_id != transaction.previous_producer_id or not was_exhausted:
        raise _fenced(transaction, present)


def _next_epoch(transaction: Transaction, present: ProducerIdentity | None) -> tuple[int, int]:
    """Return the new epoch, and the epoch before it, which is -1 for a new producer.

    For a repeated request, returns the same epochs again. Raises ``BrokerError`` 90 for a fenced
    producer.
    """
    epoch = transaction.producer_epoch
    if present is None:
        return epoch + 1, NO_EPOCH
    if epoch in (NO_EPOCH, present.producer_epoch):
        return epoch + 1, epoch
    if present.producer_epoch == transaction.last_epoch:
        # It asks again: our answer was lost. A new producer would have set the last epoch to -1.
        return epoch, transaction.last_epoch
    raise _fenced(transaction, present)


def fence(transaction: Transaction, server_version: int, now_ms: int) -> Transaction:
    """Abort an open transaction with a new epoch that no producer receives.

    This happens when the transaction has timed out, or when another producer begins to use the
    transactional id; the other producer has to repeat its request. Raises ``BrokerError`` -1 if the
    producer id has no epoch left for this. In that case only the producer of the transaction can
    end it.
    """
    if transaction.producer_epoch >= HIGHEST_EPOCH:
        raise BrokerError(
            ErrorCode.unknown_server_error,
            f"no epoch is left that could fence the producer of {transaction.transactional_id!r}",
        )
    bumps = server_version >= _BUMPING_VERSION
    return transaction.becomes(
        TransactionState.PREPARE_ABORT,
        now_ms,
        producer_epoch=transaction.producer_epoch + 1,
        last_epoch=transaction.producer_epoch if bumps else NO_EPOCH,
        client_version=server_version,
    )


def add_partitions(
    transaction: Transaction,
    identity: ProducerIdentity,
    partitions: Collection[TopicPartition],
    now_ms: int,
) -> Transaction:
    """AddPartitionsToTxn, AddOffsetsToTxn: add partitions to the open or a new transaction.

    Raises ``BrokerError`` 49 for another producer id, 90 for another epoch, and 51 while the last
    transaction is ending.
    """
    _check_identity(transaction, identity)
    if transaction.is_open:
        if transaction.partitions.issuperset(partitions):
            return transaction
        started = transaction.started_ms
    else:
        started = now_ms
    return transaction.becomes(
        TransactionState.ONGOING,
        now_ms,
        partitions=transaction.partitions.union(partitions),
        started_ms=started,
    )


def verify(transaction: Transaction, identity: ProducerIdentity, where: TopicPartition) -> None:
    """Raise ``BrokerError`` 120 unless the partition is part of the transaction (KIP-890).

    Also raises 49 for another producer id, 90 for another epoch, and 51 while the transaction is
    ending.
    """
    _check_identity(transaction, identity)
    if where not in transaction.partitions:
        raise BrokerError(
            ErrorCode.transaction_abortable,
            f"{where} is not part of the transaction of {transaction.transactional_id}",
        )


def _check_identity(transaction: Transaction, identity: ProducerIdentity) -> None:
    # Before anything else: a producer that knows its next id may come before that one counts.
    if transaction.state in PREPARED:
        raise _wait(transaction)
    _check_producer(transaction, identity)


def end(
    transaction: Transaction,
    identity: ProducerIdentity,
    committed: bool,
    client_version: int,
    now_ms: int,
    take_id: TakeId,
    *,
    fences_late_commits: bool = False,
) -> Transaction:
    """EndTxn: decide how the transaction ends. Returns the same object for a repeated request.

    Raises ``BrokerError`` 49 for another producer id, 90 for another epoch, 51 while the markers
    are being written, and 48 if the current state does not allow this end. ``fences_late_commits``
    is explained in ``TransactionConfig``.
    """
    bumps = client_version >= _BUMPING_VERSION
    if bumps and transaction.state in PREPARED:
        raise _wait(transaction)
    repeated = bumps and _is_repeated(transaction, identity)
    if repeated:
        was_aborted = transaction.state is TransactionState.COMPLETE_ABORT
        if fences_late_commits and committed and was_aborted:
            raise _fenced(transaction, identity)  # KAFKA-20785
    else:
        _check_producer(transaction, identity)
    if repeated or (not bumps and not transaction.is_open):
        _check_repeated(transaction, committed)
        return transaction
    if committed and not transaction.is_open:
        raise _illegal(transaction, committed)
    state = TransactionState.PREPARE_COMMIT if committed else TransactionState.PREPARE_ABORT
    if not bumps:
        return transaction.becomes(state, now_ms, client_version=client_version)
    return transaction.becomes(
        state,
        now_ms,
        producer_epoch=min(transaction.producer_epoch + 1, HIGHEST_EPOCH),
        last_epoch=transaction.producer_epoch,
        next_producer_id=take_id() if transaction.is_exhausted else NO_PRODUCER_ID,
        started_ms=transaction.started_ms if transaction.is_open else now_ms,
        client_version=client_version,
    )


def _check_producer(transaction: Transaction, identity: ProducerIdentity) -> None:
    if transaction.producer_id != identity.producer_id:
        raise unmapped(transaction.transactional_id, identity)
    if transaction.producer_epoch != identity.producer_epoch:
        raise _fenced(transaction, identity)


def _is_repeated(transaction: Transaction, identity: ProducerIdentity) -> bool:
    """Whether a request repeats the one that ended the transaction.

    Such a request has the epoch from before the end.
    """
    if transaction.state in (TransactionState.EMPTY, TransactionState.ONGOING):
        return False
    bumped = identity == (transaction.producer_id, transaction.producer_epoch - 1)
    if transaction.producer_epoch != 0:
        return bumped
    used_up = {LAST_EPOCH, HIGHEST_EPOCH}
    if transaction.last_epoch != NO_EPOCH:  # it is not on disk
        used_up &= {transaction.last_epoch}
    return (
        identity.producer_id == transaction.previous_producer_id
        and identity.producer_epoch in used_up
    )


def _check_repeated(transaction: Transaction, committed: bool) -> None:
    """Raise ``BrokerError`` unless the transaction has ended in this way.

    Raises 51 if the transaction is still ending in this way, and 48 otherwise.
    """
    ending = TransactionState.PREPARE_COMMIT if committed else TransactionState.PREPARE_ABORT
    ended = TransactionState.COMPLETE_COMMIT if committed else TransactionState.COMPLETE_ABORT
    if transaction.state is ending:
        raise _wait(transaction)
    if transaction.state is not ended:
        raise _illegal(transaction, committed)


def complete(transaction: Transaction, now_ms: int) -> Transaction:
    """Complete the transaction, because every partition has its marker.

    A producer id whose epochs are used up is replaced by the next producer id.
    """
    committed = transaction.state is TransactionState.PREPARE_COMMIT
    done = TransactionState.COMPLETE_COMMIT if committed else TransactionState.COMPLETE_ABORT
    if transaction.next_producer_id == NO_PRODUCER_ID:
        return transaction.becomes(done, now_ms, partitions=frozenset())
    return transaction.becomes(
        done,
        now_ms,
        partitions=frozenset(),
        producer_id=transaction.next_producer_id,
        producer_epoch=0,
        previous_producer_id=transaction.producer_id,
        next_producer_id=NO_PRODUCER_ID,
    )


def identity_after(transaction: Transaction) -> ProducerIdentity:
    """Return the producer's id and epoch after the transaction, as EndTxn 5 reports them."""
    if transaction.next_producer_id != NO_PRODUCER_ID:
        return ProducerIdentity(transaction.next_producer_id, 0)
    return ProducerIdentity(transaction.producer_id, transaction.producer_epoch)


def _fenced(transaction: Transaction, identity: ProducerIdentity) -> BrokerError:
    return BrokerError(
        ErrorCode.producer_fenced,
        f"epoch {identity.producer_epoch} of {transaction.transactional_id!r} is not the present"
        f" one, {transaction.producer_epoch}",
    )


def unmapped(transactional_id: str, identity: ProducerIdentity) -> BrokerError:
    """Return the error for a transactional id that does not belong to the producer id."""
    return BrokerError(
        ErrorCode.invalid_producer_id_mapping,
        f"{transactional_id!r} does not belong to producer {identity.producer_id}",
    )


def _wait(transaction: Transaction) -> BrokerError:
    return BrokerError(
        ErrorCode.concurrent_transactions,
        f"the last transaction of {transaction.transactional_id!r} is ending",
    )


def _illegal(transaction: Transaction, committed: bool) -> BrokerError:
    return BrokerError(
        ErrorCode.invalid_txn_state,
        f"{transaction.transactional_id!r} is {transaction.state.spelled}, so that nothing can be "
        + ("committed" if committed else "aborted"),
    )
