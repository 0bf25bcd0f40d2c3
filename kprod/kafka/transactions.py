"""The transactional calls as kafka-python has them, over kprod's own"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from kprod.errors import KprodError
from kprod.kafka.translation import translated
from kprod.producer import KafkaProducer as NativeProducer


class TransactionCalls:
    """Part of ``KafkaProducer``. Each call that waits does so for ``max_block_ms`` at most.

    Raises KafkaTimeoutError then: the same call has to be made again. ``next_step`` of an error
    says what else to do (see ``kprod.NextStep``).
    """

    _native: NativeProducer

    def init_transactions(self) -> None:
        """Ask the coordinator for a producer id, which fences older producers of the same name."""
        _translating(self._native.init_transactions)

    def begin_transaction(self) -> None:
        """Begin a transaction. Raises IllegalStateError when there is one."""
        _translating(self._native.begin_transaction)

    def send_offsets_to_transaction(self, offsets: Any, group_metadata: Any) -> None:
        """Let a group's offsets move with the transaction.

        ``offsets`` maps TopicPartition to OffsetAndMetadata; ``group_metadata`` is a group id, or
        the consumer's ConsumerGroupMetadata.
        """
        _translating(self._native.send_offsets_to_transaction, offsets, group_metadata)

    def commit_transaction(self) -> None:
        """Send what is queued, and commit."""
        _translating(self._native.commit_transaction)

    def abort_transaction(self) -> None:
        """Give up the transaction."""
        _translating(self._native.abort_transaction)


def _translating(call: Callable[..., None], *arguments: Any) -> None:
    try:
        call(*arguments)
    except KprodError as error:
        raise translated(error) from error
