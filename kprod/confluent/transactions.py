"""Transactional calls that are compatible with confluent-kafka's, on top of kprod's own."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from kprod import errors as native
from kprod.clock import SystemClock
from kprod.confluent.errors import KafkaError, KafkaException, failure_of_call
from kprod.confluent.native import NativeProducer, seconds
from kprod.confluent.unassigned import UnassignedRecords
from kprod.sender.transactions import Call
from kprod.transactional.transaction_calls import PAUSE
from kprod_ext.confluent import DeliveryReports

monotonic = SystemClock.monotonic


class ProducerTransactions:
    """Part of ``Producer``. ``timeout`` is in seconds, -1 for no limit.

    The calls raise KafkaException. The methods of its KafkaError say what to do. If ``retriable()``
    is true, repeat the call. If ``txn_requires_abort()`` is true, abort. If ``fatal()`` is true,
    make a new producer. Like ``poll``, commit and abort run delivery callbacks in the calling
    thread. If a callback raises, its exception is raised after the commit or abort has ended.
    Inside a delivery callback, both calls raise KafkaException.
    """

    _unassigned: UnassignedRecords
    _ending: Call | None = None
    """The call that ends a transaction, until its last callback has run. Any thread reads it."""

    @property
    def _reports(self) -> DeliveryReports:
        raise AssertionError("implemented by Producer")

    def _refuse_inside(self, call: str) -> None:
        raise AssertionError("implemented by Producer")

    @property
    def _running(self) -> NativeProducer:
        raise AssertionError("implemented by Producer")

    @property
    def _transactional(self) -> NativeProducer:
        """The native producer. Raises unless it has a transactional id."""
        if self._running.config.transactional_id is None:
            words = "Local: Functionality not configured: transactions need transactional.id"
            raise KafkaException(KafkaError(KafkaError._NOT_CONFIGURED, words))
        return self._running

    def init_transactions(self, timeout: float | None = -1) -> None:
        """Get a producer id from the coordinator.

        This fences older producers with the same transactional id.
        """
        _raising(self._transactional.init_transactions, seconds(timeout))

    def begin_transaction(self) -> None:
        """Begin a transaction. Raises KafkaException in a callback during commit or abort."""
        if self._ending is not None:
            words = f"begin_transaction(): {self._ending.value}() has not returned"
            raise failure_of_call(native.UnfinishedCallError(words))
        _raising(self._transactional.begin_transaction)

    def send_offsets_to_transaction(
        self, positions: list[Any], group_metadata: Any, timeout: float | None = -1
    ) -> None:
        """Commit a consumer group's offsets as part of the transaction.

        ``positions`` are TopicPartitions with offsets; offsets below 0 are ignored.
        ``group_metadata`` is the result of ``Consumer.consumer_group_metadata()``, a
        ``kprod.GroupMetadata``, or a group id.
        """
        known = [position for position in positions if position.offset >= 0]
        call = self._transactional.send_offsets_to_transaction
        _raising(call, known, group_metadata, seconds(timeout))

    def commit_transaction(self, timeout: float | None = -1) -> None:
        """Send all produced records and commit, after waiting until their topics are known."""
        self._end_transaction(Call.COMMIT, seconds(timeout))

    def abort_transaction(self, timeout: float | None = -1) -> None:
        """Abort the transaction. Reports of unsent records have the code ``_PURGE_QUEUE``."""
        self._end_transaction(Call.ABORT, seconds(timeout))

    def _end_transaction(self, call: Call, longest: float) -> None:
        running, deadline = self._transactional, monotonic() + longest
        self._refuse_inside(f"{call.value}()")
        failures: list[Exception] = []

        def serve() -> None:
            try:
                while not failures and self._reports.serve():
                    pass
            except Exception as error:  # the next poll() runs the remaining callbacks
                failures.append(error)

        def discard() -> None:
            self._unassigned.purge(aborted)
            serve()

        aborted = native.TransactionAbortedError("the transaction was aborted")
        self._ending = call
        try:
            if call is Call.COMMIT:
                self._await_topics(deadline, serve)
            else:
                discard()
                # A record that is just being queued must not get into the next transaction.
                self._await_topics(deadline, discard)
            left = max(0.0, deadline - monotonic())
            _raising(running.end_transaction, call, left, serve)
        finally:
            try:
                serve()
            finally:
                self._ending = None
            if failures:
                raise failures[0]

    def _await_topics(self, deadline: float, meanwhile: Callable[[], None]) -> None:
        while not self._unassigned.await_none(min(PAUSE, max(0.0, deadline - monotonic()))):
            meanwhile()
            if monotonic() >= deadline:
                words = "Local: Timed out: records wait for their topic; repeat the call"
                raise KafkaException(KafkaError(KafkaError._TIMED_OUT, words, retriable=True))


def _raising(call: Callable[..., None], *arguments: Any) -> None:
    try:
        call(*arguments)
    except native.RecordTypeError:
        raise
    except native.KprodError as error:
        raise failure_of_call(error) from error
