"""The state machine of transactions: every call in every state."""

from __future__ import annotations

import itertools
import logging
from collections.abc import Callable

import pytest

from kprod import KafkaProducer
from kprod.errors import (
    BrokerError,
    IllegalStateError,
    InvalidRecordError,
    KprodError,
    ProducerFencedError,
    TransactionAbortableError,
    TransactionAbortedError,
    UnfinishedCallError,
)
from kprod.sender.transactions import FROM, LEADS_TO, RENAMED_FROM, Call, State, Transactions
from kprod.transactional.two_phase_commit import PreparedTransaction, TwoPhaseCommit
from kprod.wire.transactions import GroupMetadata, OffsetToCommit
from kprod.wire.versions import ApiKey, ApiVersions
from tests.support.ports import free_port
from tests.unit.sender.coordinating import BOTH, T0, Dialogue

OFFSETS = (OffsetToCommit("t", 0, 7),)
MEMBER = GroupMetadata("g")
PREPARED = (40, 7)
FENCED = ProducerFencedError("fenced")
FAILED = BrokerError(48, "t-0")


def fresh() -> Transactions:
    return Transactions("tx", 60_000)


def do(transactions: Transactions, call: Call) -> None:
    """Make the call, without waiting for its end."""
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
    """Return from a ``call`` that has ended."""
    transactions.collect(transactions.start(call))


def in_state(state: State) -> Transactions:
    """A state machine that was brought into ``state`` by calls."""
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
        do(transactions, call)  # waits again
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


@pytest.mark.parametrize("state", State)
def test_a_producer_can_be_renamed_when_it_has_nothing_to_end(state: State) -> None:
    transactions = in_state(state)
    if state in RENAMED_FROM:
        transactions.rename("other")
        transactions.start(Call.INIT)
        assert transactions.transactional_id == "other"
    else:
        with pytest.raises(IllegalStateError):
            transactions.rename("other")
        assert transactions.state is state


def test_a_producer_cannot_be_renamed_before_its_call_has_returned() -> None:
    transactions = in_state(State.INITIALIZING)
    transactions.ready()
    with pytest.raises(IllegalStateError):
        transactions.rename("other")
    end(transactions, Call.INIT)
    transactions.rename("other")


def test_an_unfinished_call_must_be_repeated() -> None:
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
    transactions.collect(pending)
    transactions.begin()
    assert transactions.number == 2


@pytest.mark.parametrize("end", [started(Call.ABORT), Transactions.close])
def test_a_failure_after_a_concurrent_abort_is_ignored(end: Callable[[Transactions], None]) -> None:
    """While the sender formats the error of a record, another thread aborts or closes."""
    transactions = in_state(State.IN_TRANSACTION)

    class OutrunError(KprodError):
        def __str__(self) -> str:
            end(transactions)
            return "a record has failed"

    transactions.fail(OutrunError())
    assert transactions.state is State.ABORTING
    assert transactions.error is None
    transactions.ready()


def test_equal_offsets_share_a_request_and_others_follow() -> None:
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
        transactions.collect(second)


def test_offsets_dropped_by_close_are_not_sent() -> None:
    """The answer and the close are concurrent."""
    transactions = in_state(State.IN_TRANSACTION)
    pending = transactions.start_offsets(OFFSETS, MEMBER)
    assert transactions.next_offsets() is pending
    transactions.close()
    transactions.offsets_sent(pending)
    with pytest.raises(TransactionAbortedError):
        transactions.collect(pending)


def test_offsets_sent_after_the_call_timed_out_are_not_sent_again() -> None:
    """Else a call with a short timeout would send them each time, and never succeed."""
    transactions = in_state(State.IN_TRANSACTION)
    first = transactions.start_offsets(OFFSETS, MEMBER)
    transactions.offsets_sent(first)
    again = transactions.start_offsets(OFFSETS, MEMBER)
    assert again is first
    assert again.ended.is_open
    assert transactions.next_offsets() is None
    transactions.collect(again)
    assert transactions.start_offsets(OFFSETS, MEMBER) is not first, "a new request"


@pytest.mark.parametrize("state", State)
def test_close_aborts_and_ends_waiting_calls(state: State) -> None:
    aborted = state in (State.IN_TRANSACTION, State.ABORTABLE_ERROR)
    after = State.ABORTING if aborted else state
    transactions = in_state(state)
    pending = transactions.start(Call.INIT) if state is State.INITIALIZING else None
    transactions.close()
    assert transactions.state is after
    assert transactions.under_way is (after in (State.COMMITTING, State.ABORTING))
    assert pending is None or pending.ended.is_open


def test_a_completed_commit_succeeds_when_closing_before_the_next_epoch() -> None:
    transactions = in_state(State.COMMITTING)
    pending = transactions.start(Call.COMMIT)
    transactions.reinitializes()
    transactions.close()
    assert pending.ended.is_open
    transactions.collect(pending)


def test_the_newest_feature_level_counts() -> None:
    transactions = fresh()
    transactions.on_api_versions(ApiVersions({}, {"transaction.version": 2}, 7))
    assert transactions.level == 2
    transactions.on_api_versions(ApiVersions({}, {"transaction.version": 1}, 6))
    transactions.on_api_versions(ApiVersions({}))
    assert transactions.level == 2
    transactions.on_api_versions(ApiVersions({}, {}, 8))
    assert transactions.level == 0


# Prepared transactions that another process ends --------------------------------------------------


def resumed(implicit: bool) -> Dialogue:
    dialogue = Dialogue(implicit=implicit)
    dialogue.transactions.resume(PREPARED)
    return dialogue


@BOTH
@pytest.mark.parametrize("call", [Call.COMMIT, Call.ABORT])
def test_a_resumed_transaction_is_ended_by_one_request(implicit: bool, call: Call) -> None:
    dialogue = resumed(implicit)
    assert dialogue.next_ask() is None
    dialogue.transactions.start(call)
    ask = dialogue.expect(ApiKey.END_TXN)
    assert ask.fields == ("tx", PREPARED, call is Call.COMMIT)
    assert (ask.version_cap is None) is implicit
    dialogue.coordination.take(ask, dialogue.reply(ask), 0.0)
    if not implicit:  # the sequences of its partitions are unknown here
        assert dialogue.expect(ApiKey.INIT_PRODUCER_ID).fields[2:] == PREPARED
        dialogue.answer(ApiKey.INIT_PRODUCER_ID)
    dialogue.collect(call)
    assert dialogue.transactions.state is State.READY
    assert dialogue.producer.epoch == PREPARED[1] + 1
    dialogue.begin(T0)
    dialogue.commit()


def test_a_resumed_transaction_uses_the_protocol_known_at_its_end() -> None:
    """It is unknown when the transaction is resumed."""
    dialogue = resumed(implicit=False)
    dialogue.transactions.start(Call.COMMIT)
    assert dialogue.due().version_cap is not None
    dialogue.upgrade(2)
    assert dialogue.due().version_cap is None


@pytest.mark.parametrize(("renamed", "level"), [(False, "ERROR"), (True, "INFO")])
def test_fencing_is_an_error_unless_it_is_expected(
    renamed: bool, level: str, caplog: pytest.LogCaptureFixture
) -> None:
    """Attempts of an exactly-once job fence each other, and rename their producers."""
    caplog.set_level(logging.INFO, "kprod")
    dialogue = Dialogue(implicit=False)
    if renamed:
        dialogue.transactions.rename("other")
    dialogue.initialize()
    dialogue.transactions.begin()
    dialogue.coordination.admits(T0)
    dialogue.answer(ApiKey.ADD_PARTITIONS_TO_TXN, 90)
    assert dialogue.transactions.state is State.FATAL_ERROR
    (line,) = caplog.records
    assert (line.levelname, "PRODUCER_FENCED" in line.message) == (level, True)


@BOTH
def test_a_fenced_resumed_transaction_raises_without_an_error_in_the_log(
    implicit: bool, caplog: pytest.LogCaptureFixture
) -> None:
    """The caller gets the error, so it is logged as information only."""
    caplog.set_level(logging.INFO, "kprod")
    dialogue = resumed(implicit)
    dialogue.transactions.start(Call.COMMIT)
    dialogue.answer(ApiKey.END_TXN, 90)
    if implicit:  # the coordinator may have aborted it: an abort shows that
        dialogue.answer(ApiKey.END_TXN, 90)
    with pytest.raises(ProducerFencedError):
        dialogue.collect(Call.COMMIT)
    (line,) = caplog.records
    assert (line.levelname, "PRODUCER_FENCED" in line.message) == ("INFO", True)


def test_only_a_new_producer_can_resume() -> None:
    dialogue = Dialogue(implicit=True)
    dialogue.initialize()
    with pytest.raises(IllegalStateError):
        dialogue.transactions.resume(PREPARED)
    assert dialogue.transactions.state is State.READY


@pytest.mark.parametrize("call", [Call.INIT, Call.BEGIN, Call.SEND, Call.OFFSETS, Call.PREPARE])
def test_a_resumed_transaction_can_only_be_ended(call: Call) -> None:
    dialogue = resumed(implicit=True)
    with pytest.raises(IllegalStateError):
        dialogue.transactions.check(call)
    assert dialogue.transactions.refusal() is not None


@pytest.mark.parametrize(("level", "now"), [(1, 2), (2, 1)], ids=["upgraded", "downgraded"])
def test_a_transaction_ends_with_its_original_feature_level(level: int, now: int) -> None:
    """The cluster's ``transaction.version`` has changed since."""
    dialogue = Dialogue(implicit=now == 2)
    dialogue.transactions.resume(PREPARED, level)
    dialogue.transactions.start(Call.COMMIT)
    ask = dialogue.expect(ApiKey.END_TXN)
    assert ask.version_cap == (None if level == 2 else 4)
    dialogue.coordination.take(ask, dialogue.reply(ask), 0.0)
    if level == 1:
        dialogue.answer(ApiKey.INIT_PRODUCER_ID)
    dialogue.coordination.release_hold()
    dialogue.collect(Call.COMMIT)
    assert dialogue.transactions.state is State.READY


def test_a_prepared_transaction_can_be_parsed_from_its_text() -> None:
    known = PreparedTransaction("a:b", 40, 7, level=2, began_ms=1_700_000_000_000)
    bare = PreparedTransaction("a:b", 40, 7)
    for prepared in (known, bare, known._replace(level=1), known._replace(began_ms=None)):
        assert PreparedTransaction.parse(str(prepared)) == prepared
    assert PreparedTransaction.parse("40:7:a:b") == bare, "the earlier format"
    for wrong in ("", "v2", "40:7", "40:7:", "v2:40:7:2:3:", "v2:40:x:::a", "-1:7:a", "v2:1:2:3:a"):
        with pytest.raises(InvalidRecordError, match="is not a prepared transaction"):
            PreparedTransaction.parse(wrong)


@pytest.mark.parametrize(("producer_id", "epoch"), [(2**63, 0), (40, 2**15), (-1, 0), (40, -1)])
def test_invalid_producer_ids_and_epochs_are_refused(producer_id: int, epoch: int) -> None:
    """The sender could not encode them, and would end."""
    with pytest.raises(InvalidRecordError, match="is not a prepared transaction"):
        PreparedTransaction.parse(f"v2:{producer_id}:{epoch}:::tx")
    nobody = f"127.0.0.1:{free_port()}"
    producer = KafkaProducer(bootstrap_servers=nobody, transactional_id="tx")
    with pytest.raises(InvalidRecordError, match="is not a prepared transaction"):
        TwoPhaseCommit(producer).resume(PreparedTransaction("tx", producer_id, epoch))
    producer.close()
