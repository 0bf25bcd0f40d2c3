"""Transactions as one state machine: states, moves, and the calls that each state allows.

It follows Kafka's ``TransactionManager`` (KIP-98, KIP-360, KIP-588, KIP-890), with one additional
state. Callers make the moves that they ask for, and the sender makes those that follow from answers
of brokers. If a call is not allowed, it raises and changes nothing. ``coordination`` contains the
requests to the coordinator.
"""

from __future__ import annotations

import copy
import enum
from collections.abc import Callable, Container, Mapping

from kprod.errors import (
    IllegalStateError,
    KprodError,
    ProducerClosedError,
    TransactionAbortableError,
    TransactionAbortedError,
    UnfinishedCallError,
)
from kprod.lock import Lock
from kprod.sender.deadlines import Pending
from kprod.sender_log import SenderLog
from kprod.types import TopicPartition
from kprod.wire.transactions import CommittedOffset, GroupMetadata, OffsetToCommit
from kprod.wire.versions import ApiVersions

log = SenderLog(__name__)

FEATURE = "transaction.version"


class State(enum.Enum):
    """The state of a transactional producer. Its value describes it in words."""

    UNINITIALIZED = "init_transactions() was not called yet"
    INITIALIZING = "the coordinator is asked for a producer id"
    READY = "there is no transaction: begin_transaction() begins one"
    IN_TRANSACTION = "a transaction is open"
    PREPARED = "the transaction is prepared: it can only be committed or aborted"
    COMMITTING = "the transaction is being committed"
    ABORTING = "the transaction is being aborted"
    ABORTABLE_ERROR = "the transaction has failed: it can only be aborted"
    FATAL_ERROR = "the producer can only be closed"

    __hash__ = object.__hash__  # that of Enum is a function of Python


class Call(enum.StrEnum):
    """The calls of an application, with the names of the methods."""

    INIT = "init_transactions"
    BEGIN = "begin_transaction"
    SEND = "send"
    OFFSETS = "send_offsets_to_transaction"
    PREPARE = "prepare_transaction"
    COMMIT = "commit_transaction"
    ABORT = "abort_transaction"


_S = State
ENDS: Mapping[State, str] = {_S.COMMITTING: "committed", _S.ABORTING: "aborted"}
"""What a transaction is once the coordinator has ended it in this state."""

OPEN = (State.IN_TRANSACTION, State.PREPARED, State.COMMITTING)
"""States in which queued records may be sent."""
DOOMED = (State.ABORTABLE_ERROR, State.ABORTING)
"""States in which queued records will never be sent."""


FROM: Mapping[Call, tuple[State, ...]] = {
    Call.INIT: (_S.UNINITIALIZED,),
    Call.BEGIN: (_S.READY,),
    Call.SEND: (_S.IN_TRANSACTION,),
    Call.OFFSETS: (_S.IN_TRANSACTION,),
    Call.PREPARE: (_S.IN_TRANSACTION,),
    Call.COMMIT: (_S.IN_TRANSACTION, _S.PREPARED),
    Call.ABORT: (_S.IN_TRANSACTION, _S.PREPARED, _S.ABORTABLE_ERROR),
}
"""The states in which an application may make each call."""
LEADS_TO: Mapping[Call, State] = {
    Call.INIT: _S.INITIALIZING,
    Call.BEGIN: _S.IN_TRANSACTION,
    Call.PREPARE: _S.PREPARED,
    Call.COMMIT: _S.COMMITTING,
    Call.ABORT: _S.ABORTING,
}
"""The state that each call leads to; the other calls change none."""
RENAMED_FROM = (_S.UNINITIALIZED, _S.READY, _S.PREPARED)
"""The states in which a producer may get another transactional id: it has nothing to end."""
SENDER_MOVES: Mapping[State, tuple[State, ...]] = {
    _S.READY: (_S.INITIALIZING, *ENDS),
    _S.INITIALIZING: tuple(ENDS),
    _S.ABORTABLE_ERROR: OPEN,
    _S.FATAL_ERROR: tuple(State),
}
"""From which states the sender moves to each of these. The end of a transaction leads to
``INITIALIZING`` if the next one needs another epoch that only the coordinator can assign."""


class PendingCall(Pending):
    """A transactional call that is in progress, or that ended after its caller had timed out."""

    __slots__ = ("call",)

    def __init__(self, call: Call) -> None:
        super().__init__()
        self.call = call


class PendingOffsets(PendingCall):
    """Offsets that are sent to the coordinator of their group. Only the sender uses ``left``."""

    __slots__ = ("left", "member", "offsets")

    def __init__(self, offsets: tuple[OffsetToCommit, ...], member: GroupMetadata) -> None:
        super().__init__(Call.OFFSETS)
        self.offsets = offsets
        self.member = member
        self.left: list[OffsetToCommit] = list(offsets)


class OffsetFetch(Pending):
    """A caller's question about the committed offsets of a group. ``found`` is the answer.

    ``waits``: the answer waits until no open transaction can change the offsets. Otherwise it comes
    at once, and offsets that an open transaction may change count as missing.
    """

    __slots__ = ("found", "group_id", "partitions", "waits")

    def __init__(
        self, group_id: str, partitions: tuple[TopicPartition, ...], *, waits: bool = True
    ) -> None:
        super().__init__()
        self.group_id = group_id
        self.partitions = partitions
        self.waits = waits
        self.found: list[CommittedOffset] = []


class Transactions:
    """The state of one transactional producer. Thread-safe; headings say who calls the methods.

    ``state`` is read without a lock. ``changed`` is called after each change that may need the
    sender. It may be called with the lock held, so it must not wait. ``error``: why the
    transaction, or the producer, has failed. ``number`` counts the transactions that were begun.
    """

    def __init__(self, transactional_id: str, timeout_ms: int) -> None:
        self.transactional_id = transactional_id
        self.timeout_ms = timeout_ms
        self.has_rivals = False
        """Whether other producers take over the id on purpose, so that being fenced is expected."""
        self.state = State.UNINITIALIZED
        self.error: KprodError | None = None
        self.last_error: KprodError | None = None  # of the question that is to be asked again
        self.level = 0
        """The cluster's ``transaction.version``, as far as brokers have said."""
        self.used_level: int | None = 0
        """The level that the transaction is written under; the sender sets it between two
        transactions. None if that is not known of a resumed one: it ends under ``level``."""
        self._level_as_of = -1
        self.fetches: list[OffsetFetch] = []  # that have not ended, oldest first
        self._no_fetches: KprodError | None = None  # why they end at once
        self.number = 0
        self.fate: str | None = None
        """One of ``ENDS`` once the coordinator has ended the latest transaction. Before that, it is
        "unknown" if a commit or prepare was asked for, and the transaction may be committed."""
        self.producer: tuple[int, int] | None = None  # id and epoch, as far as they are known
        self._pending: PendingCall | None = None
        self._offsets: list[PendingOffsets] = []  # of this transaction, until they are collected
        self._closing = False
        self._lock = Lock()  # guards all of the above
        self.changed: Callable[[], object] = bool

    # Callers --------------------------------------------------------------------------------------

    def refusal(self) -> KprodError | None:
        """Why no record may be queued now; None in an open transaction."""
        return None if self.state is State.IN_TRANSACTION else self._refused(Call.SEND)

    def begin(self) -> None:
        """Begin a transaction, without a request. Raises like ``start``."""
        with self._lock:
            self._check(Call.BEGIN)
            self.number += 1
            self.fate = None
            self._offsets = []
            self._move(State.IN_TRANSACTION)

    def resume(self, producer: tuple[int, int], level: int | None = None) -> None:
        """Take over the transaction that the producer with this id and epoch has prepared.

        It can only be committed or aborted. ``level`` is the level of the feature
        ``transaction.version`` under which it was written; None: the level that brokers report.
        Raises IllegalStateError.
        """
        with self._lock:
            if self.state is not State.UNINITIALIZED:
                raise IllegalStateError(f"no transaction can be resumed: {self.state.value}")
            self._move(State.PREPARED)
            self.used_level = level
            self.producer = producer
            self.number += 1

    def rename(self, transactional_id: str) -> None:
        """Let the producer be a new one with another id, or the same. ``INIT`` comes next.

        Only the attempts of exactly-once jobs call this, and they fence each other.

        Raises IllegalStateError, except before the first call, between two transactions, and after
        one was prepared, which stays prepared.
        """
        with self._lock:
            if self._pending is not None or self.state not in RENAMED_FROM:
                raise IllegalStateError(
                    f"no other transactional id is possible: {self.state.value}"
                )
            self.transactional_id = transactional_id
            self.has_rivals = True
            self.producer = None
            self._move(State.UNINITIALIZED)

    def start(self, call: Call) -> PendingCall:
        """Begin what ``call`` asks for. If the same call has timed out, continue that one.

        Raises IllegalStateError if another call has not ended or if ``call`` is not allowed in this
        state. Raises the error of the transaction if it has failed.
        """
        begun = PendingCall(call)
        with self._lock:
            pending = self._pending
            if pending is not None and pending.call is call:
                return pending
            self._check(call)
            self._move(LEADS_TO[call])
            self._pending = begun
            if call in (Call.COMMIT, Call.PREPARE):
                self.fate = "unknown"
        return begun

    def start_offsets(
        self, offsets: tuple[OffsetToCommit, ...], member: GroupMetadata
    ) -> PendingOffsets:
        """Add offsets to the transaction. A repeated call continues the first one.

        Raises like ``start``.
        """
        begun = PendingOffsets(offsets, member)
        with self._lock:
            self._check(Call.OFFSETS)
            for pending in self._offsets:
                if pending.offsets == offsets and pending.member == member:
                    return pending
            self._offsets.append(begun)
            self.changed()
        return begun

    def check(self, call: Call) -> None:
        """Raise what ``start`` would raise, and do nothing else."""
        with self._lock:
            self._check(call)

    def is_uncollected(self, call: Call) -> bool:
        """Whether ``call`` is in progress, or ended after its caller had timed out."""
        pending = self._pending
        return pending is not None and pending.call is call

    def collect(self, pending: PendingCall) -> None:
        """The caller knows that the call has ended. Raises the error of the call, if it has one."""
        with self._lock:
            if self._pending is pending:
                self._pending = None
            else:  # not in place: the sender may look through them
                self._offsets = [each for each in self._offsets if each is not pending]
        if pending.error is not None:
            raise copy.copy(pending.error)

    def fetch(self, fetch: OffsetFetch) -> None:
        """Ask for the committed offsets of a group. ``fetch.ended`` opens with the answer."""
        with self._lock:
            if self._no_fetches is None:
                self.fetches = [*self.fetches, fetch]  # not in place: the sender reads them
            else:
                fetch.end(copy.copy(self._no_fetches))
        self.changed()

    def end_fetch(self, fetch: OffsetFetch, error: KprodError | None = None) -> None:
        """End ``fetch``: it has its result or an error, or its caller has stopped waiting."""
        with self._lock:
            self.fetches = [each for each in self.fetches if each is not fetch]
        fetch.end(error)

    def _end_fetches(self, error: KprodError) -> None:
        with self._lock:
            self._no_fetches = error
            fetches, self.fetches = self.fetches, []
        for fetch in fetches:
            fetch.end(copy.copy(error))

    def close(self) -> None:
        """The producer closes: abort an open transaction. A prepared one stays prepared."""
        with self._lock:
            self._closing = True
            if self.state in (State.IN_TRANSACTION, State.ABORTABLE_ERROR):
                log.info("%s: aborted, for the producer closes", self)
                self._move(State.ABORTING)
            elif self.state is State.INITIALIZING:
                self._end_pending(ProducerClosedError("closed during init_transactions()"))
        self._end_fetches(ProducerClosedError("closed before the coordinator has answered"))

    def _check(self, call: Call) -> None:
        """Raise if ``call`` is not allowed, or if another call must be repeated first.

        The lock is held.
        """
        pending = self._pending
        if pending is not None and self.state is not State.FATAL_ERROR:
            raise UnfinishedCallError(
                f"{call}(): call {pending.call}() again first, to learn how it ended"
            )
        if self.state not in FROM[call]:
            raise self._refused(call)

    def _refused(self, call: Call) -> KprodError:
        error = self.error
        if error is not None:
            return copy.copy(error)  # each caller gets a copy: notes and tracebacks are its own
        why = "is not possible now"
        if call is Call.INIT and self.state is not State.PREPARED:  # a resumed one has its id
            why = "was called before, and once is enough"
        return IllegalStateError(f"{call}() {why}: {self.state.value}")

    # The sender -----------------------------------------------------------------------------------

    def on_api_versions(self, versions: ApiVersions) -> None:
        """A broker's handshake has named the cluster's features. The newest answer counts."""
        if versions.features_epoch >= self._level_as_of:
            self._level_as_of = versions.features_epoch
            self.level = versions.features.get(FEATURE, 0)

    @property
    def under_way(self) -> bool:
        """True if the sender must ask the coordinator something, for a caller or for ``close``."""
        if self._closing:
            return self.state in (State.COMMITTING, State.ABORTING)
        pending = self._pending
        if self.fetches or self.next_offsets() is not None:
            return True
        return pending is not None and not pending.ended.is_open

    def next_offsets(self) -> PendingOffsets | None:
        """The offsets to send next, or None."""
        for offsets in self._offsets:
            if not offsets.ended.is_open:
                return offsets
        return None

    def offsets_sent(self, sent: PendingOffsets) -> None:
        """The coordinator of the group has accepted all of ``sent``."""
        with self._lock:  # ``close`` may drop them at the same time
            sent.ended.open()

    def prepared(self) -> None:
        """All records and offsets of a prepared transaction are stored."""
        with self._lock:
            self._end_pending(None)

    def ready(self) -> None:
        """The coordinator has finished: a transaction can begin."""
        with self._lock:
            self._sender_moves(State.READY, None)

    def reinitializes(self) -> None:
        """End the transaction, and request a new epoch before the next one begins."""
        with self._lock:
            self._leave(State.INITIALIZING)
            self.error = None

    def fail(self, cause: KprodError, states: Container[State] = OPEN) -> None:
        """If the transaction is in one of ``states``, it can only be aborted now. Any thread."""
        if self.state not in states:
            return
        error = TransactionAbortableError(f"{self} can only be aborted: {cause}")
        error.__cause__ = cause
        with self._lock:
            # Again: a caller may have begun to abort, or to close, while the error was made.
            if self.state in states:
                self._sender_moves(State.ABORTABLE_ERROR, error)
                if self._closing:  # nobody else aborts it
                    self._move(State.ABORTING)

    def end_for_good(self, error: KprodError) -> None:
        """The producer cannot continue: every call gets ``error``."""
        with self._lock:
            if self.state is not State.FATAL_ERROR:
                self._sender_moves(State.FATAL_ERROR, error)

    def end(self, error: KprodError) -> None:
        """The producer has ended: callers that still wait get ``error``."""
        self.end_for_good(error)
        self._end_fetches(error)

    # Both, with the lock held ---------------------------------------------------------------------

    def _sender_moves(self, to: State, error: KprodError | None) -> None:
        """Make a move of the sender, and end the calls that wait for it."""
        self._leave(to)
        self.error = error
        if to is State.ABORTABLE_ERROR:
            self.fate = None
        self._end_pending(error)
        if error is not None:
            self._drop_offsets(error)

    def _leave(self, to: State) -> None:
        """Make a move of the sender. A wrong one is a bug, which ends its loop and the producer."""
        if self.state not in SENDER_MOVES[to]:
            raise AssertionError(f"the sender makes no move from {self.state.name} to {to.name}")
        self._move(to)

    def _move(self, to: State) -> None:
        if to in (State.READY, State.INITIALIZING):
            self.fate = ENDS.get(self.state, self.fate)
        self.state = to
        if to is State.ABORTING:
            self._drop_offsets(TransactionAbortedError(f"{self} was aborted"))
        if to is not State.IN_TRANSACTION:  # which asks for nothing
            self.changed()

    def _end_pending(self, error: KprodError | None) -> None:
        pending = self._pending
        if pending is None or pending.ended.is_open:
            return
        # If its transaction has ended as it asks for, only an epoch was missing. A commit must not
        # fail for the sake of the next transaction: it would be made once more.
        pending.error = None if self.fate in ENDS.values() else error
        if self._closing:
            self._pending = None
        pending.ended.open()

    def _drop_offsets(self, error: KprodError) -> None:
        for pending in self._offsets:
            pending.end(error)

    def __str__(self) -> str:
        return f"transaction {self.number} of {self.transactional_id!r}"
