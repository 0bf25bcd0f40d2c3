"""The transactional calls as confluent-kafka has them, over kprod's own"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from kprod import errors as native
from kprod.clock import SystemClock
from kprod.confluent.errors import KafkaException, from_native
from kprod.confluent.group_metadata import group_metadata as read_group_metadata
from kprod.confluent.unplaced import UnplacedRecords
from kprod.producer import KafkaProducer

LONG = 10.0**9
monotonic = SystemClock.monotonic


class TransactionCalls:
    """Part of ``Producer``. ``timeout`` is seconds, -1 for no limit.

    Each raises KafkaException. Its KafkaError says what to do: ``retriable()``, call it again;
    ``txn_requires_abort()``, abort; ``fatal()``, make a new producer. Delivery reports are served
    by ``poll`` and ``flush``, not by these.
    """

    _unplaced: UnplacedRecords

    @property
    def _running(self) -> KafkaProducer:
        raise AssertionError("the producer has its own")

    def init_transactions(self, timeout: float | None = -1) -> None:
        """Ask the coordinator for a producer id, which fences older producers of the same name."""
        _raising(self._running.init_transactions, _seconds(timeout))

    def begin_transaction(self) -> None:
        """Begin a transaction."""
        _raising(self._running.begin_transaction)

    def send_offsets_to_transaction(
        self, positions: list[Any], group_metadata: Any, timeout: float | None = -1
    ) -> None:
        """Let a group's offsets move with the transaction.

        ``positions`` are TopicPartitions with offsets; those without one, below 0, are left out.
        ``group_metadata`` is what ``Consumer.consumer_group_metadata()`` returns, or
        ``kprod.GroupMetadata``, or a group id.
        """
        known = [position for position in positions if position.offset >= 0]
        call = self._running.send_offsets_to_transaction
        member = read_group_metadata(group_metadata)
        _raising(call, known, member, _seconds(timeout))

    def commit_transaction(self, timeout: float | None = -1) -> None:
        """Send what was produced, and commit."""
        running, seconds = self._running, _seconds(timeout)
        began = monotonic()
        self._unplaced.await_none(seconds)
        _raising(running.commit_transaction, max(0.0, seconds - (monotonic() - began)))

    def abort_transaction(self, timeout: float | None = -1) -> None:
        """Give up the transaction; what was not sent has a report with ``_PURGE_QUEUE``."""
        running = self._running
        self._unplaced.purge(native.TransactionAbortedError("the transaction was aborted"))
        _raising(running.abort_transaction, _seconds(timeout))


def _seconds(timeout: float | None) -> float:
    return LONG if timeout is None or timeout < 0 else timeout


def _raising(call: Callable[..., None], *arguments: Any) -> None:
    try:
        call(*arguments)
    except native.RecordTypeError:
        raise
    except native.KprodError as error:
        raise KafkaException(from_native(error)) from error
