"""The coordinator's rules: what each request makes of each state, by both protocols."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from kio.schema.errors import ErrorCode

from kprod.broker.transactions import transaction_rules as rules
from kprod.broker.transactions.transaction import LEGAL, Transaction, TransactionState
from kprod.broker.transactions.transaction_rules import ProducerIdentity
from kprod.errors import BrokerError
from kprod.types import TopicPartition

EMPTY, ONGOING, PREPARE_COMMIT, PREPARE_ABORT, COMPLETE_COMMIT, COMPLETE_ABORT, *_ = (
    TransactionState
)
FENCED, ILLEGAL, UNMAPPED, WAIT = (
    ErrorCode.producer_fenced,
    ErrorCode.invalid_txn_state,
    ErrorCode.invalid_producer_id_mapping,
    ErrorCode.concurrent_transactions,
)
NOW = 5_000
T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)
WHO = ProducerIdentity(7, 4)
LAST, HIGHEST = 32766, 32767
FRESH_ID = 1000


def transaction(state: TransactionState, **changes: Any) -> Transaction:
    in_use = state in (ONGOING, *PREPARED)
    found = Transaction(
        "x",
        WHO.producer_id,
        WHO.producer_epoch,
        60_000,
        state,
        frozenset({T0}) if in_use else frozenset(),
        started_ms=-1 if state is EMPTY else 1_000,
        updated_ms=1_000,
        last_epoch=3,
    )
    return replace(found, **changes)


def outcome(act: Any) -> TransactionState | ErrorCode:
    """The state that a request leads to, or the code of its refusal."""
    try:
        found: Transaction = act()
    except BrokerError as error:
        return ErrorCode(error.code)
    return found.state


def end(
    present: Transaction,
    epoch: int,
    committed: bool,
    version: int,
    producer_id: int = 7,
    **options: bool,
) -> TransactionState | ErrorCode:
    who = ProducerIdentity(producer_id, epoch)
    return outcome(
        lambda: rules.end(present, who, committed, version, NOW, lambda: FRESH_ID, **options)
    )


PREPARED = (PREPARE_COMMIT, PREPARE_ABORT)
STATES = (EMPTY, ONGOING, *PREPARED, COMPLETE_COMMIT, COMPLETE_ABORT)
OUTCOMES: dict[str, TransactionState | ErrorCode] = dict(
    zip("FIWCAca", (FENCED, ILLEGAL, WAIT, *PREPARED, COMPLETE_COMMIT, COMPLETE_ABORT), strict=True)
)
VERSION_1 = dict(zip(STATES, ("II", "CA", "WI", "IW", "cI", "Ia"), strict=True))
BY_VERSION_1 = {state: f"FF FF {ends} FF" for state, ends in VERSION_1.items()}
BY_VERSION_2 = {
    EMPTY: "FF FF IA FF",
    ONGOING: "FF FF CA FF",
    PREPARE_COMMIT: "WW WW WW WW",
    PREPARE_ABORT: "WW WW WW WW",
    COMPLETE_COMMIT: "FF cI IA FF",
    COMPLETE_ABORT: "FF Ia IA FF",
}
# KAFKA-20785 changes one answer: to a commit that the coordinator's abort was faster than.
WITH_LATE_COMMITS_FENCED = BY_VERSION_2 | {COMPLETE_ABORT: "FF Fa IA FF"}


@pytest.mark.parametrize("state", STATES)
@pytest.mark.parametrize(
    ("version", "ends", "options"),
    [
        (0, BY_VERSION_1, {}),
        (2, BY_VERSION_2, {}),
        (2, WITH_LATE_COMMITS_FENCED, {"fences_late_commits": True}),
    ],
)
def test_ending(
    state: TransactionState, version: int, ends: dict[Any, str], options: dict[str, bool]
) -> None:
    """What a commit and an abort come to, in the epochs from 2 to 5; the present one is 4."""
    present = transaction(state)
    for epoch, both in zip(range(2, 6), ends[state].split(), strict=True):
        for committed, letter in zip((True, False), both, strict=True):
            found = end(present, epoch, committed, version, **options)
            assert found == OUTCOMES[letter], (epoch, committed)
    stranger = end(present, 4, True, version, producer_id=8, **options)
    assert stranger == (WAIT if version == 2 and state in PREPARED else UNMAPPED)


def test_by_version_2_each_end_begins_an_epoch() -> None:
    ended = rules.end(transaction(ONGOING), WHO, True, 2, NOW, lambda: FRESH_ID)
    assert (ended.producer_epoch, ended.last_epoch, ended.client_version) == (5, 4, 2)
    assert ended.partitions == {T0}
    done = rules.complete(ended, NOW)
    assert (done.state, done.producer_epoch, done.partitions) == (COMPLETE_COMMIT, 5, frozenset())
    assert rules.identity_after(done) == (7, 5)
    by_version_1 = rules.end(transaction(ONGOING), WHO, True, 0, NOW, lambda: FRESH_ID)
    assert by_version_1.producer_epoch == 4


def test_the_last_epoch_gives_way_to_a_new_producer_id() -> None:
    present = transaction(ONGOING, producer_epoch=LAST)
    who = ProducerIdentity(7, LAST)
    ended = rules.end(present, who, False, 2, NOW, lambda: FRESH_ID)
    assert (ended.producer_id, ended.producer_epoch) == (7, HIGHEST)
    assert rules.identity_after(ended) == (FRESH_ID, 0)
    assert end(ended, LAST, False, 2) == WAIT
    heir = rules.identity_after(ended)  # it is told before the markers are written
    for act in (
        lambda: rules.add_partitions(ended, heir, (T0,), NOW),
        lambda: rules.verify(ended, heir, T0),
        lambda: rules.end(ended, heir, False, 2, NOW, lambda: 1),
    ):
        assert outcome(act) == WAIT
    done = rules.complete(ended, NOW)
    assert (done.producer_id, done.producer_epoch, done.previous_producer_id) == (FRESH_ID, 0, 7)
    # The answer was lost: the same request comes again, with the old id.
    assert rules.end(done, who, False, 2, NOW, lambda: 1) is done
    assert rules.identity_after(done) == (FRESH_ID, 0)
    assert end(done, LAST, True, 2) == ILLEGAL
    assert end(done, LAST - 1, False, 2) == UNMAPPED


def initialize(present: Transaction, who: ProducerIdentity | None = None) -> Transaction:
    return rules.initialize(present, 9_000, who, NOW, lambda: FRESH_ID)


@pytest.mark.parametrize("state", [EMPTY, COMPLETE_COMMIT, COMPLETE_ABORT])
def test_a_new_producer_gets_the_next_epoch(state: TransactionState) -> None:
    found = initialize(transaction(state))
    assert (found.state, found.producer_id, found.producer_epoch) == (EMPTY, 7, 5)
    assert (found.last_epoch, found.timeout_ms, found.started_ms) == (-1, 9_000, -1)


@pytest.mark.parametrize("state", PREPARED)
def test_nobody_gets_one_while_the_last_transaction_ends(state: TransactionState) -> None:
    assert outcome(lambda: initialize(transaction(state))) == WAIT
    assert outcome(lambda: initialize(transaction(state), WHO)) == WAIT
    stranger = ProducerIdentity(8, 0)
    assert outcome(lambda: initialize(transaction(state), stranger)) == WAIT


def test_a_producer_bumps_its_own_epoch() -> None:
    found = initialize(transaction(COMPLETE_ABORT), WHO)
    assert (found.producer_epoch, found.last_epoch) == (5, 4)
    again = initialize(found, WHO)
    assert (again.producer_epoch, again.last_epoch) == (5, 4), "the answer was lost: no new epoch"
    for epoch in (2, 6):
        zombie = ProducerIdentity(7, epoch)
        assert outcome(lambda who=zombie: initialize(found, who)) == FENCED
    # Somebody else came: what was the last epoch is over for good.
    assert outcome(lambda: initialize(initialize(found), WHO)) == FENCED
    assert outcome(lambda: initialize(found, ProducerIdentity(8, 4))) == FENCED


def test_epochs_that_are_used_up_lead_to_a_new_id() -> None:
    used_up = transaction(EMPTY, producer_epoch=LAST)
    for who in (None, ProducerIdentity(7, LAST)):
        found = initialize(used_up, who)
        assert (found.producer_id, found.producer_epoch) == (FRESH_ID, 0)
        assert found.previous_producer_id == 7
    assert found.last_epoch == LAST
    again = initialize(found, ProducerIdentity(7, LAST))
    assert (again.producer_id, again.producer_epoch) == (FRESH_ID, 0)
    fenced = transaction(COMPLETE_ABORT, producer_epoch=HIGHEST)
    assert initialize(fenced).producer_id == FRESH_ID


def test_a_new_transactional_id_starts_at_epoch_0() -> None:
    fresh = Transaction("x", 7, -1, 60_000)
    for who in (None, ProducerIdentity(99, 12)):
        assert initialize(fresh, who).producer_epoch == 0


@pytest.mark.parametrize("version", [0, 1, 2])
def test_fencing_aborts_in_an_epoch_nobody_is_told(version: int) -> None:
    fenced = rules.fence(transaction(ONGOING), version, NOW)
    assert (fenced.state, fenced.producer_epoch) == (PREPARE_ABORT, 5)
    assert fenced.last_epoch == (4 if version == 2 else -1)
    done = rules.complete(fenced, NOW)
    # What the producer asks that was too slow: the transaction it means is not there any more.
    if version == 2:
        assert end(done, 4, True, 2) == ILLEGAL
        assert end(done, 4, False, 2) == COMPLETE_ABORT
    else:
        assert end(done, 4, True, 0) == FENCED
        assert end(done, 4, False, 0) == FENCED
    assert initialize(done).producer_epoch == 6


@pytest.mark.parametrize("state", STATES)
def test_adding_partitions(state: TransactionState) -> None:
    present = transaction(state)

    def add(who: ProducerIdentity, *partitions: TopicPartition) -> Transaction:
        return rules.add_partitions(present, who, partitions, NOW)

    strangers = [ProducerIdentity(8, 4), ProducerIdentity(7, 3), ProducerIdentity(7, 5)]
    if state in PREPARED:
        for who in (WHO, *strangers):
            assert outcome(lambda who=who: add(who, T1)) == WAIT
        return
    for who, code in zip(strangers, (UNMAPPED, FENCED, FENCED), strict=True):
        assert outcome(lambda who=who: add(who, T1)) == code
    found = add(WHO, T1)
    assert found.state is ONGOING
    assert found.partitions == ({T0, T1} if state is ONGOING else {T1})
    assert found.started_ms == (1_000 if state is ONGOING else NOW)
    if state is ONGOING:
        assert add(WHO, T0) is present, "nothing to write"


def test_verifying_partitions() -> None:
    def code(present: Transaction, who: ProducerIdentity, where: TopicPartition) -> int:
        with pytest.raises(BrokerError) as caught:
            rules.verify(present, who, where)
        return caught.value.code

    rules.verify(transaction(ONGOING), WHO, T0)
    assert code(transaction(ONGOING), WHO, T1) == ErrorCode.transaction_abortable
    assert code(transaction(EMPTY), WHO, T0) == ErrorCode.transaction_abortable
    assert code(transaction(PREPARE_COMMIT), WHO, T0) == WAIT
    assert code(transaction(ONGOING), ProducerIdentity(7, 3), T0) == FENCED
    assert code(transaction(ONGOING), ProducerIdentity(8, 4), T0) == UNMAPPED


def test_only_legal_transitions_are_made() -> None:
    for state in TransactionState:
        for target in TransactionState:
            present = replace(transaction(EMPTY), state=state)
            if target in LEGAL[state]:
                assert present.becomes(target, NOW).state is target
            else:
                with pytest.raises(ValueError, match=f"{state.name} -> {target.name}"):
                    present.becomes(target, NOW)
