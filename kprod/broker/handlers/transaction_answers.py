"""What the handlers of transactions share: the gate in front of a log, and codes by version."""

from __future__ import annotations

from typing import Final

from kio.schema.errors import ErrorCode

from kprod.broker.log.partition_log import PartitionLog
from kprod.broker.node import Node
from kprod.broker.transactions.transaction_rules import ProducerIdentity
from kprod.broker.verifications import VerificationGuard
from kprod.errors import BrokerError

_BUSY: Final = (
    ErrorCode.coordinator_load_in_progress,
    ErrorCode.coordinator_not_available,
    ErrorCode.not_coordinator,
)


class TransactionGate:
    """What a request that appends in a transaction can do and understand, by its version.

    ``adds`` (KIP-890): the coordinator adds the partition; it is asked whether it is part of the
    transaction otherwise. ``knows_abortable``: 120 and not 48 says that it is not.
    """

    def __init__(self, *, adds: bool, knows_abortable: bool) -> None:
        self.adds = adds
        self._knows_abortable = knows_abortable

    def enter(
        self, node: Node, log: PartitionLog, transactional_id: str, who: ProducerIdentity
    ) -> VerificationGuard | None:
        """What the log wants to see with the batch; ``BrokerError`` with the producer's code."""
        guard = log.verification(*who, node.clock.wall_ms())
        if guard is None:
            return None
        try:
            if self.adds:
                node.transactions.add_partitions(transactional_id, who, [log.where])
            else:
                node.transactions.verify(transactional_id, who, log.where)
        except BrokerError as error:
            raise BrokerError(self._code(error.code), str(error)) from error
        return guard

    def _code(self, code: int) -> int:
        if code == ErrorCode.producer_fenced:
            # That would be the end of the producer. This one says that of the transaction.
            return ErrorCode.invalid_producer_epoch
        if code == ErrorCode.transaction_abortable and not self._knows_abortable:
            return ErrorCode.invalid_txn_state
        waits = code == ErrorCode.concurrent_transactions and not self.adds
        if waits or code in _BUSY:
            # Something that every producer tries again without asking for metadata first.
            return ErrorCode.not_enough_replicas
        return code


def fencing_code(code: int, version: int, first_with_fenced: int) -> int:
    """90 was 47 before clients could tell them apart (KIP-588)."""
    if code == ErrorCode.producer_fenced and version < first_with_fenced:
        return ErrorCode.invalid_producer_epoch
    return code
