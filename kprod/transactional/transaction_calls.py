"""The transactional calls of a producer, and a transaction as a ``with`` block."""

from __future__ import annotations

import logging
from collections.abc import Callable
from types import TracebackType
from typing import Any, Self

from kprod.clock import Clock
from kprod.errors import (
    IllegalStateError,
    KprodError,
    TransactionTimeoutError,
    UnfinishedCallError,
)
from kprod.intake.arguments import check_seconds
from kprod.metrics import ProducerMetrics
from kprod.quantities import in_seconds
from kprod.sender.engine import LONGEST_WAIT, Engine
from kprod.sender.transactions import Call, PendingCall, State, Transactions
from kprod.transactional.group_offsets import Offsets, group_member, offsets_to_commit
from kprod.types import NextStep

TIMES = {
    Call.INIT: "txn-init-time-ns-total",
    Call.BEGIN: "txn-begin-time-ns-total",
    Call.OFFSETS: "txn-send-offsets-time-ns-total",
    Call.COMMIT: "txn-commit-time-ns-total",
    Call.ABORT: "txn-abort-time-ns-total",
}
"""The metric that has the time spent in each call."""

_DONE_BY_ABORT = (NextStep.ABORT, NextStep.RETRY_CALL)
"""Next steps that are already done when the end of a ``with`` block has aborted."""
PAUSE = 0.1
"""Seconds between two calls of a drop-in package's function while a transaction ends."""

log = logging.getLogger("kprod")


class TransactionCalls:
    """Part of ``KafkaProducer``: transactions, for producers with a ``transactional_id``.

    Thread-safe. A producer has one transaction at a time; records of all threads belong to it.
    Timeouts are in seconds; None means ``max_block_ms``. A call that raises TransactionTimeoutError
    is still in progress: repeat the call until it returns or raises another error. Until then,
    other transactional calls raise UnfinishedCallError. Only ``send_offsets_to_transaction`` need
    not be repeated: ``commit_transaction`` sends the offsets first, and ``abort_transaction`` drops
    them. The ``next_step`` of each error says what to do. Inside a delivery callback, calls that
    wait raise IllegalStateError.
    """

    _transactions: Transactions | None
    _engine: Engine
    _clock: Clock
    _max_block: float
    _metrics: ProducerMetrics

    def init_transactions(self, timeout: float | None = None) -> None:
        """Get a producer id from the coordinator. Call it once, before the first transaction.

        This fences every older producer with the same ``transactional_id`` and aborts its open
        transaction. Raises IllegalStateError without a ``transactional_id`` and for a second call,
        TransactionTimeoutError, and TransactionError if retries do not help.
        """
        self._complete(Call.INIT, timeout)

    def await_producer_id(self, timeout: float) -> None:
        """Wait at most ``timeout`` seconds until an idempotent producer has its producer id.

        Use it after ``connect`` to check the permissions of the client. Returns at once if the
        producer needs no id. Raises BrokerError if the cluster does not allow idempotent writes,
        and KprodTimeoutError.
        """
        check_seconds("await_producer_id", timeout, LONGEST_WAIT)
        self._ensure_usable()
        self._engine.await_producer_id(timeout)

    def begin_transaction(self) -> None:
        """Begin a transaction. This sends nothing and does not wait.

        Raises IllegalStateError if a transaction is open or ``init_transactions`` was not called,
        and ProducerFencedError or TransactionError if the producer can only be closed.
        """
        began = self._clock.monotonic()
        self._ensure_usable()
        self._transactional(Call.BEGIN).begin()
        self._spent(Call.BEGIN, began)

    def send_offsets_to_transaction(
        self, offsets: Offsets, group_metadata: Any, timeout: float | None = None
    ) -> None:
        """Commit the offsets of a consumer group together with the transaction.

        ``offsets`` maps ``(topic, partition)`` to the offset of the next record to read: an int, or
        an object with ``offset``, ``metadata`` and ``leader_epoch``. It may also be a list of such
        objects that have ``topic`` and ``partition``. ``group_metadata`` is a group id, a
        ``GroupMetadata``, or the group metadata of a consumer. Pass metadata with a generation and
        a member id, so that a member that was removed from the group cannot commit (KIP-447). The
        call returns when the group coordinator has the offsets.

        Raises RecordTypeError, InvalidRecordError, InvalidTopicError or PartitionError before
        anything is sent, IllegalStateError outside a transaction, and TransactionAbortableError if
        the coordinator rejects the offsets.
        """
        check_seconds(Call.OFFSETS, timeout, LONGEST_WAIT)
        member, checked = group_member(group_metadata), offsets_to_commit(offsets)
        self._ensure_usable()
        transactions = self._transactional(Call.OFFSETS)
        if not checked:
            transactions.check(Call.OFFSETS)
            return
        self._engine.refuse_inside(Call.OFFSETS)
        self._await(transactions, transactions.start_offsets(checked, member), timeout)

    def commit_transaction(self, timeout: float | None = None) -> None:
        """Send the queued records and commit the transaction, including its offsets.

        Raises TransactionAbortableError if a record or an earlier call has failed: nothing is
        committed, and you have to abort. Raises TransactionTimeoutError if the result is not known
        yet: repeat the call.
        """
        self._complete(Call.COMMIT, timeout)

    def abort_transaction(self, timeout: float | None = None) -> None:
        """Abort the transaction. Consumers with ``read_committed`` never see its records.

        Records that are still queued are not sent; they fail with TransactionAbortedError. Raises
        the errors of ``commit_transaction``, except TransactionAbortableError.
        """
        self._complete(Call.ABORT, timeout)

    def transaction(self, timeout: float | None = None) -> Transaction:
        """Return a transaction for ``with``. The end of the block commits, an exception aborts.

        Calls ``init_transactions`` first if necessary. ``timeout`` applies to each call that waits.
        """
        check_seconds("transaction", timeout, LONGEST_WAIT)
        return Transaction(self, timeout)

    def init_unless_done(self, timeout: float | None) -> None:
        """Call ``init_transactions``, unless it has succeeded before.

        ``transaction()`` and drop-in packages use this, so that ``init_transactions`` may have been
        called before. Raises the errors of ``init_transactions``, or the error because of which the
        producer can only be closed.
        """
        self._ensure_usable()
        transactions = self._transactional(Call.INIT)
        uncollected = transactions.is_uncollected(Call.INIT)
        if uncollected or transactions.state in (State.UNINITIALIZED, State.FATAL_ERROR):
            self.init_transactions(timeout)

    def finish_abort(self, timeout: float | None) -> None:
        """If a call of ``abort_transaction`` has timed out, repeat it. Raises its errors."""
        if self._transactional(Call.ABORT).is_uncollected(Call.ABORT):
            self.abort_transaction(timeout)

    def record_lost(self, error: KprodError) -> None:
        """Report a record that was rejected, if the caller does not get an exception for it.

        For drop-in packages. Afterwards, an open transaction can only be aborted, because a commit
        would leave out the record.
        """
        if self._transactions is not None:
            self._transactions.fail(error, (State.IN_TRANSACTION,))

    @property
    def can_only_be_closed(self) -> bool:
        """True if the producer was fenced, or failed permanently."""
        return self._transactions is not None and self._transactions.state is State.FATAL_ERROR

    @property
    def ended_transaction(self) -> str | None:
        """The result of the last transaction, even if the call that ended it has not returned yet.

        ``"committed"``, ``"aborted"``, or ``"unknown"`` while the transaction may still be
        committed; None if no call has ended it.
        """
        transactions = self._transactions
        if transactions is None:
            return None
        return "aborted" if transactions.state is State.ABORTING else transactions.fate

    @property
    def transaction_name(self) -> str:
        """The current or last transaction, as logs and errors name it."""
        return str(self._transactions)

    # What all of them do --------------------------------------------------------------------------

    def _complete(
        self, call: Call, timeout: float | None, meanwhile: Callable[[], object] | None = None
    ) -> None:
        """Start a call and wait for it. A drop-in package's ``meanwhile`` runs between waits."""
        if timeout is not None:
            check_seconds(call, timeout, LONGEST_WAIT)
        self._ensure_usable()
        transactions = self._transactional(call)
        self._engine.refuse_inside(call)
        self._await(transactions, transactions.start(call), timeout, meanwhile)

    def _await(
        self,
        transactions: Transactions,
        pending: PendingCall,
        timeout: float | None,
        meanwhile: Callable[[], object] | None = None,
    ) -> None:
        seconds = self._max_block if timeout is None else timeout
        began = self._clock.monotonic()
        if meanwhile is None:
            ended = self._engine.wait(pending.ended, seconds)
        else:
            ended = self._wait_and_do(meanwhile, pending, began + seconds)
        self._spent(pending.call, began)
        if not ended:
            raise self._too_long(transactions, pending.call, seconds)
        transactions.collect(pending)
        if pending.call in (Call.PREPARE, Call.COMMIT, Call.ABORT):
            # An application that counts outcomes in callbacks has counted all when this returns.
            self._engine.drain_callbacks(max(0.0, began + seconds - self._clock.monotonic()))

    def _wait_and_do(
        self, meanwhile: Callable[[], object], pending: PendingCall, deadline: float
    ) -> bool:
        while True:
            left = max(0.0, deadline - self._clock.monotonic())
            ended = self._engine.wait(pending.ended, min(left, PAUSE))
            meanwhile()
            if ended or not left:
                return ended

    def _spent(self, call: Call, began: float) -> None:
        name = TIMES.get(call)
        if name is not None:
            self._metrics.spent(name, self._clock.monotonic() - began)

    def _too_long(
        self, transactions: Transactions, call: Call, seconds: float
    ) -> TransactionTimeoutError:
        last_error = transactions.last_error
        why = "" if last_error is None else f"; the last error was: {last_error}"
        error = TransactionTimeoutError(
            f"{call}() has not ended after {in_seconds(seconds)} and goes on: call it again{why}"
        )
        error.__cause__ = last_error
        return error

    def _transactional(self, call: str) -> Transactions:
        if self._transactions is None:
            raise IllegalStateError(f"{call}() needs a producer with a transactional_id")
        return self._transactions

    def _ensure_usable(self) -> None:
        raise AssertionError("the producer has its own")


class Transaction:
    """One transaction of a producer, for ``with``. Use it in one thread.

    Other threads may ``send`` meanwhile. If the block raises, the transaction is aborted. If the
    abort times out, the next block waits for it. If the block raises a KprodError, the
    ``next_step`` of the error says what to do next. You may also commit or abort inside the block.

    ``outcome`` is None until the block ends, and then ``"committed"``, ``"aborted"`` or
    ``"unknown"``. It is unknown if a commit was requested and its result is not known. The logger
    ``kprod`` also logs the outcome.
    """

    def __init__(self, producer: TransactionCalls, timeout: float | None) -> None:
        self.outcome: str | None = None
        self._producer = producer
        self._timeout = timeout

    def send_offsets(self, offsets: Any, group_metadata: Any) -> None:
        """See ``KafkaProducer.send_offsets_to_transaction``."""
        self._producer.send_offsets_to_transaction(offsets, group_metadata, self._timeout)

    def prepare(self) -> None:
        """Wait for everything that must happen before ``begin``, such as an unfinished abort."""
        self._producer.init_unless_done(self._timeout)
        self._producer.finish_abort(self._timeout)

    def begin(self) -> None:
        """Begin the transaction, after ``prepare``. This does not wait."""
        self._producer.begin_transaction()

    def __enter__(self) -> Self:
        self.prepare()
        self.begin()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if error is None:
            self._commit()
        else:
            self._abort(error)

    def _commit(self) -> None:
        try:
            self._producer.commit_transaction(self._timeout)
        except BaseException as failure:
            if not isinstance(failure, KprodError) or failure.next_step is not NextStep.ABORT:
                self._tell(self._ended_within(failure) or "unknown", failure)
                raise
            worse = self._abort(failure)
            if worse is not None and worse.next_step is not NextStep.RETRY_CALL:
                raise worse from failure  # it says what to do now
            raise
        self._tell("committed", None)

    def _abort(self, cause: BaseException) -> KprodError | None:
        """Abort because of ``cause``, the error that the application wants to see.

        If the coordinator has not confirmed the abort, returns the error of the abort. The
        transaction will still be aborted, unless the block itself has requested a commit.
        """
        unconfirmed: KprodError | None = None
        outcome = "aborted"
        next_step: NextStep | None = NextStep.BEGIN_AGAIN
        try:
            self._producer.abort_transaction(self._timeout)
        except KprodError as failure:
            outcome = self._ended_within(failure) or outcome
            unconfirmed = failure
            if outcome != "aborted":
                next_step = getattr(cause, "next_step", None)
            elif failure.next_step not in (NextStep.RETRY_CALL, None):
                next_step = failure.next_step
            cause.add_note(f"its coordinator has not confirmed the end: {failure}")
        finally:
            self._tell(outcome, cause)
        if isinstance(cause, KprodError) and cause.next_step in _DONE_BY_ABORT:
            cause.next_step = next_step
        return unconfirmed

    def _ended_within(self, failure: BaseException) -> str | None:
        """How the block itself has ended the transaction, or None. A call raised ``failure``."""
        unfinished = "unknown" if isinstance(failure, UnfinishedCallError) else None
        return self._producer.ended_transaction or unfinished

    def _tell(self, outcome: str, cause: BaseException | None) -> None:
        self.outcome = outcome
        what = self._producer.transaction_name
        if cause is None or outcome == "committed":
            log.info("%s was %s", what, outcome)
        elif outcome == "aborted":
            log.warning("%s was aborted: %s: %s", what, type(cause).__name__, cause)
        else:
            log.warning("whether %s was committed or aborted is not known: %s", what, cause)
