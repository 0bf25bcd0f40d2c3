"""The state machine of transactions: every state, every call, every move, and who may make it."""

from __future__ import annotations

import itertools
from collections.abc import Callable

import pytest

from kprod.errors import (
    BrokerError,
    IllegalStateError,
    KprodError,
    ProducerFencedError,
    TransactionAbortableError,
    TransactionAbortedError,
    UnfinishedCallError,
)
from kprod.sender.transactions import (
    FROM,
    LEADS_TO,
    Call,
    State,
    Transactions,
)
from kprod.wire.transactions import GroupMetadata, OffsetToCommit
from kprod.wire.versions import ApiVersions

OFFSETS = (OffsetToCommit("t", 0, 7),)
MEMBER = GroupMetadata("g")
FENCED = ProducerFencedError("fenced")
FAILED = BrokerError(48, "t-0")


def fresh() -> Transactions:
    return Transactions("tx", 60_000)


def do(transactions: Transactions, call: Call) -> None:
    """``call``, and its end if it is one that waits, as the sender would bring it."""
    if call is Call.BEGIN:
        transactions.begin()
    elif call is Call.SEND:
        refused = transactions.refusal()
        if refused is not None:
            raise refused
    elif call is Call.OFFSETS:
        transactions.start_offsets(OFFSETS, MEMBER)
    else:
        transactions.start(call)


def end(transactions: Transactions, call: Call) -> None:
    """The caller hears that ``call`` has ended well."""
    transactions.heard(transactions.start(call))


def in_state(state: State) -> Transactions:
    """A machine that has come there by moves of its own."""
    transactions = fresh()
    for step in PATHS[state]:
        step(transactions)
    assert transactions.state is state
    return transactions


def initialized(transactions: Transactions) -> None:
    transactions.start(Call.INIT)
    transactions.ready()
    end(transactions, Call.INIT)


def started(call: Call) -> Callable[[Transactions], None]:
    return lambda transactions: do(transactions, call)


def prepared(transactions: Transactions) -> None:
    transactions.start(Call.PREPARE)
    transactions.prepared()
    end(transactions, Call.PREPARE)


def failed(transactions: Transactions) -> None:
    transactions.fail(FAILED)


def fenced(transactions: Transactions) -> None:
    transactions.end_for_good(FENCED)


OPENED = [initialized, started(Call.BEGIN)]
PATHS: dict[State, list[Callable[[Transactions], None]]] = {
    State.UNINITIALIZED: [],
    State.INITIALIZING: [started(Call.INIT)],
    State.READY: [initialized],
    State.IN_TRANSACTION: OPENED,
    State.PREPARED: [*OPENED, prepared],
    State.COMMITTING: [*OPENED, started(Call.COMMIT)],
    State.ABORTING: [*OPENED, started(Call.ABORT)],
    State.ABORTABLE_ERROR: [*OPENED, failed],
    State.FATAL_ERROR: [*OPENED, fenced],
}
UNDER_WAY = {
    State.INITIALIZING: Call.INIT,
    State.COMMITTING: Call.COMMIT,
    State.ABORTING: Call.ABORT,
}


@pytest.mark.parametrize(("state", "call"), list(itertools.product(State, Call)))
def test_every_call_in_every_state(state: State, call: Call) -> None:
    transactions = in_state(state)
    if state in FROM[call]:
        do(transactions, call)
        assert transactions.state is LEADS_TO.get(call, State.IN_TRANSACTION)
    elif UNDER_WAY.get(state) is call:
        do(transactions, call)  # it is waited for once more
        assert transactions.state is state
    else:
        with pytest.raises(KprodError) as caught:
            do(transactions, call)
        assert transactions.state is state
        expected: type[KprodError] = IllegalStateError
        if state is State.FATAL_ERROR:
            expected = ProducerFencedError
        elif state is State.ABORTABLE_ERROR:
            expected = TransactionAbortableError
        elif state in UNDER_WAY and call is not Call.SEND:
            expected = UnfinishedCallError
        assert type(caught.value) is expected


def test_a_move_of_the_sender_that_is_not_in_the_table_is_a_bug() -> None:
    """It breaks the sender's loop, which then ends the producer."""
    transactions = in_state(State.IN_TRANSACTION)
    with pytest.raises(AssertionError, match="IN_TRANSACTION to READY"):
        transactions.ready()
    assert transactions.state is State.IN_TRANSACTION


def test_a_call_that_was_not_heard_of_must_be_made_again() -> None:
    transactions = in_state(State.COMMITTING)
    pending = transactions.start(Call.COMMIT)
    for other in (Call.ABORT, Call.BEGIN, Call.OFFSETS):
        with pytest.raises(UnfinishedCallError, match=r"call commit_transaction\(\) again"):
            do(transactions, other)
    transactions.ready()
    assert pending.ended.is_open
    with pytest.raises(IllegalStateError, match=r"call commit_transaction\(\) again"):
        transactions.begin()
    assert transactions.start(Call.COMMIT) is pending
    transactions.heard(pending)
    transactions.begin()
    assert transactions.number == 2


@pytest.mark.parametrize("end", [started(Call.ABORT), Transactions.close])
def test_a_failure_that_an_abort_outruns_changes_nothing(
    end: Callable[[Transactions], None],
) -> None:
    """A record fails; while the sender writes the error, another thread aborts, or closes."""
    transactions = in_state(State.IN_TRANSACTION)

    class OutrunError(KprodError):
        def __str__(self) -> str:
            end(transactions)
            return "a record has failed"

    transactions.fail(OutrunError())
    assert transactions.state is State.ABORTING
    assert transactions.error is None
    transactions.ready()


def test_the_same_offsets_are_waited_for_and_others_come_after_them() -> None:
    transactions = in_state(State.IN_TRANSACTION)
    first = transactions.start_offsets(OFFSETS, MEMBER)
    assert transactions.start_offsets(OFFSETS, MEMBER) is first
    second = transactions.start_offsets(OFFSETS, GroupMetadata("other"))
    assert transactions.next_offsets() is first
    transactions.offsets_sent(first)
    assert transactions.next_offsets() is second
    transactions.start(Call.ABORT)
    assert transactions.next_offsets() is None
    with pytest.raises(TransactionAbortedError):
        transactions.heard(second)


def test_offsets_that_a_close_has_dropped_are_not_sent_any_more() -> None:
    """The answer to them and the close come at the same time, in two threads."""
    transactions = in_state(State.IN_TRANSACTION)
    pending = transactions.start_offsets(OFFSETS, MEMBER)
    assert transactions.next_offsets() is pending
    transactions.close()
    transactions.offsets_sent(pending)
    with pytest.raises(TransactionAbortedError):
        transactions.heard(pending)


def test_offsets_that_were_sent_after_the_call_had_timed_out_are_not_sent_again() -> None:
    """A call that never waits long enough would find them gone each time, and never end."""
    transactions = in_state(State.IN_TRANSACTION)
    first = transactions.start_offsets(OFFSETS, MEMBER)
    transactions.offsets_sent(first)
    again = transactions.start_offsets(OFFSETS, MEMBER)
    assert again is first
    assert again.ended.is_open
    assert transactions.next_offsets() is None
    transactions.heard(again)
    assert transactions.start_offsets(OFFSETS, MEMBER) is not first, "asked for once more"


@pytest.mark.parametrize(
    ("state", "after", "busy"),
    [
        (State.UNINITIALIZED, State.UNINITIALIZED, False),
        (State.INITIALIZING, State.INITIALIZING, False),
        (State.READY, State.READY, False),
        (State.IN_TRANSACTION, State.ABORTING, True),
        (State.PREPARED, State.PREPARED, False),
        (State.COMMITTING, State.COMMITTING, True),
        (State.ABORTING, State.ABORTING, True),
        (State.ABORTABLE_ERROR, State.ABORTING, True),
        (State.FATAL_ERROR, State.FATAL_ERROR, False),
    ],
)
def test_closing_aborts_what_is_open_and_ends_what_waits(
    state: State, after: State, busy: bool
) -> None:
    transactions = in_state(state)
    pending = transactions.start(Call.INIT) if state is State.INITIALIZING else None
    transactions.close()
    assert transactions.state is after
    assert transactions.under_way is busy
    assert pending is None or pending.ended.is_open


def test_a_commit_that_was_taken_is_told_though_the_producer_closes_before_its_next_epoch() -> None:
    transactions = in_state(State.COMMITTING)
    pending = transactions.start(Call.COMMIT)
    transactions.reinitializes()
    transactions.close()
    assert pending.ended.is_open
    transactions.heard(pending)


def test_the_newest_word_on_the_clusters_features_counts() -> None:
    transactions = fresh()
    transactions.on_api_versions(ApiVersions({}, {"transaction.version": 2}, 7))
    assert transactions.level == 2
    transactions.on_api_versions(ApiVersions({}, {"transaction.version": 1}, 6))
    transactions.on_api_versions(ApiVersions({}))
    assert transactions.level == 2
    transactions.on_api_versions(ApiVersions({}, {}, 8))
    assert transactions.level == 0
