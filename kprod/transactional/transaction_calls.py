"""The transactional calls of a producer, and a transaction as a ``with`` block over them."""

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
from kprod.sender.engine import FOREVER, Engine
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
"""The next steps of an error that the end of a ``with`` block has taken."""
PAUSE = 0.1
"""Seconds between two calls of what a drop-in package does while a transaction ends."""

log = logging.getLogger("kprod")


class TransactionCalls:
    """Part of ``KafkaProducer``: transactions, for producers with a ``transactional_id``.

    Thread-safe, though a transaction is one for all threads that send. A call that raises
    TransactionTimeoutError goes on, and must be called again, until it returns or raises something
    else; other calls raise IllegalStateError until then. ``next_step`` of every error says what to
    do. None of these calls may be made inside a delivery callback.
    """

    _transactions: Transactions | None
    _engine: Engine
    _clock: Clock
    _max_block: float
    _metrics: ProducerMetrics

    def init_transactions(self, timeout: float | None = None) -> None:
        """Ask the coordinator for a producer id: once, before the first transaction.

        Every producer before this one that has the same ``transactional_id`` is fenced, and what it
        left open is aborted first. ``timeout`` is seconds, here and below; None for
        ``max_block_ms``. Raises IllegalStateError without a ``transactional_id`` and when it was
        called before, TransactionTimeoutError, and TransactionError for good.
        """
        self._complete(Call.INIT, timeout)

    def await_producer_id(self, timeout: float) -> None:
        """Wait until an idempotent producer has its producer id, after a call that asks for it.

        A health check for what it may do, as ``connect``, which comes first, is one for the
        network. Waits at most ``timeout`` seconds; returns at once where no id is needed. Raises
        BrokerError when the cluster allows no idempotent writes, and KprodTimeoutError.
        """
        self._ensure_usable()
        self._engine.await_producer_id(timeout)

    def begin_transaction(self) -> None:
        """Begin a transaction; nothing is sent for that, and nothing waited for.

        Raises IllegalStateError when there is one, or when ``init_transactions`` was not called;
        ProducerFencedError and TransactionError when the producer can only be closed.
        """
        began = self._clock.monotonic()
        self._ensure_usable()
        self._transactional(Call.BEGIN).begin()
        self._spent(Call.BEGIN, began)

    def send_offsets_to_transaction(
        self, offsets: Offsets, group_metadata: Any, timeout: float | None = None
    ) -> None:
        """Let a consumer group's offsets move with the transaction: both, or neither.

        ``offsets`` maps ``(topic, partition)`` to the offset of the record to be read next, as an
        int or as an object with ``offset``, ``metadata``, ``leader_epoch``; a list of objects that
        have topic and partition as well will do. ``group_metadata`` is a group id, or
        ``GroupMetadata``, or what a consumer has for that: with member and generation, a member
        that was expelled cannot commit (KIP-447). Returns once the group's coordinator has them.

        Raises RecordTypeError, InvalidRecordError, InvalidTopicError and PartitionError before
        anything is sent; IllegalStateError outside a transaction; TransactionAbortableError when
        the coordinator refuses them.
        """
        check_seconds(Call.OFFSETS.value, timeout, FOREVER)
        member, checked = group_member(group_metadata), offsets_to_commit(offsets)
        self._ensure_usable()
        transactions = self._transactional(Call.OFFSETS)
        if not checked:
            transactions.check(Call.OFFSETS)
            return
        self._engine.refuse_inside(Call.OFFSETS.value)
        self._await(transactions, transactions.start_offsets(checked, member), timeout)

    def commit_transaction(self, timeout: float | None = None) -> None:
        """Send queued records, and commit: every record becomes visible, and offsets move.

        Returns when the coordinator has decided so. Raises TransactionAbortableError when a record
        has failed, or anything else: nothing was committed, and nothing will be; abort then.
        Raises TransactionTimeoutError when it is not known yet: call it again.
        """
        self._complete(Call.COMMIT, timeout)

    def abort_transaction(self, timeout: float | None = None) -> None:
        """Give up the transaction: no reader of committed records ever sees one of it.

        Records that are still queued fail with TransactionAbortedError, without being sent. Raises
        as ``commit_transaction``, but nothing abortable.
        """
        self._complete(Call.ABORT, timeout)

    def transaction(self, timeout: float | None = None) -> Transaction:
        """A transaction for ``with``: committed at the end of the block, aborted by an exception.

        Calls ``init_transactions`` if nobody has. ``timeout`` is for each call that waits.
        """
        check_seconds("transaction", timeout, FOREVER)
        return Transaction(self, timeout)

    def init_unless_done(self, timeout: float | None) -> None:
        """``init_transactions``, if that was not called, or nobody has heard how it ended.

        What ``transaction()`` begins with, and what drop-in packages call that allow it again.
        Raises what ``init_transactions`` raises when it is called first, and why the producer can
        only be closed.
        """
        self._ensure_usable()
        transactions = self._transactional(Call.INIT)
        unheard = transactions.waits_to_be_heard(Call.INIT)
        if unheard or transactions.state in (State.UNINITIALIZED, State.FATAL_ERROR):
            self.init_transactions(timeout)

    def finish_abort(self, timeout: float | None) -> None:
        """Wait for an abort whose caller has timed out, if there is one; raises as that does."""
        if self._transactional(Call.ABORT).waits_to_be_heard(Call.ABORT):
            self.abort_transaction(timeout)

    def record_lost(self, error: KprodError) -> None:
        """A record was refused for ``error``, and the caller learns it without an exception.

        For drop-in packages. An open transaction can only be aborted then: a commit would leave
        the record out.
        """
        if self._transactions is not None:
            self._transactions.lose(error)

    @property
    def can_only_be_closed(self) -> bool:
        """Whether every call of a transaction raises: it was fenced, or refused for good."""
        return self._transactions is not None and self._transactions.state is State.FATAL_ERROR

    @property
    def ended_transaction(self) -> str | None:
        """What a call has made of the last transaction, whether its caller has heard it or not.

        ``"committed"``, ``"aborted"``, or ``"unknown"`` while it may be committed; None where no
        call has ended it, or is about to.
        """
        transactions = self._transactions
        if transactions is None:
            return None
        if transactions.ended_by is Call.COMMIT:
            return "committed"
        if transactions.ended_by is Call.ABORT or transactions.state is State.ABORTING:
            return "aborted"
        return "unknown" if transactions.may_be_committed else None

    @property
    def transaction_name(self) -> str:
        """The transaction, present or last, as logs and errors name it."""
        return str(self._transactions)

    # What all of them do --------------------------------------------------------------------------

    def _complete(
        self, call: Call, timeout: float | None, meanwhile: Callable[[], object] | None = None
    ) -> None:
        """``meanwhile``, of a drop-in package, is called between short waits."""
        check_seconds(call.value, timeout, FOREVER)
        self._ensure_usable()
        transactions = self._transactional(call)
        self._engine.refuse_inside(call.value)
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
        transactions.heard(pending)
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
        trouble = transactions.trouble
        why = "" if trouble is None else f"; the last error was: {trouble}"
        error = TransactionTimeoutError(
            f"{call.value}() has not ended after {in_seconds(seconds)} and goes on: call it again"
            f"{why}"
        )
        error.__cause__ = trouble
        return error

    def _transactional(self, call: Call) -> Transactions:
        if self._transactions is None:
            raise IllegalStateError(f"{call.value}() needs a producer with a transactional_id")
        return self._transactions

    def _ensure_usable(self) -> None:
        raise AssertionError("the producer has its own")


class Transaction:
    """One transaction of a producer. Not thread-safe itself; the producer's ``send`` is, as ever.

    A block that was left by an error has aborted; an abort that has not ended by then is waited for
    by the next block. The ``next_step`` of an error of kprod's says what is left to do then.

    ``outcome`` is ``"committed"`` or ``"aborted"`` after the block, ``"unknown"`` when a commit was
    requested and its result is not known; before that it is None. The log says the same in
    one line. A block may end it by itself.
    """

    def __init__(self, producer: TransactionCalls, timeout: float | None) -> None:
        self.outcome: str | None = None
        self._producer = producer
        self._timeout = timeout

    def send_offsets(self, offsets: Any, group_metadata: Any) -> None:
        """See ``KafkaProducer.send_offsets_to_transaction``."""
        self._producer.send_offsets_to_transaction(offsets, group_metadata, self._timeout)

    def prepare(self) -> None:
        """Wait for all that its beginning has to wait for, an abort that timed out included."""
        self._producer.init_unless_done(self._timeout)
        self._producer.finish_abort(self._timeout)

    def begin(self) -> None:
        """Begin it, after ``prepare``; nothing is waited for."""
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

        Returns why the coordinator has not confirmed it, if it has not. It is aborted all the same,
        in time, unless the block itself has asked for a commit.
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
        """What the block has made of the transaction itself, if it has; ``failure`` of a call."""
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
