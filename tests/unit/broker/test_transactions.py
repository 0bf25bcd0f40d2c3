"""Transactions: requests, the rules of the coordinator, and the highest epoch."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from kio.schema.errors import ErrorCode

from kprod.broker import TransactionConfig
from kprod.broker.log.partition_log import PartitionLog
from kprod.broker.node import Node
from kprod.broker.protocol.api_key import ApiKey
from kprod.broker.transactions import transaction_rules as rules
from kprod.broker.transactions.transaction import Transaction, TransactionState
from kprod.broker.transactions.transaction_rules import ProducerIdentity
from kprod.broker.transactions.transaction_topic import (
    transaction_value,
)
from kprod.errors import BrokerError
from kprod.types import TopicPartition
from tests.unit.broker.asking_producer import AskingProducer, check_answers
from tests.unit.broker.nodes import ask, running_node

NONE = ErrorCode.none


@contextmanager
def running(path: Path, version: int = 2, **options: Any) -> Iterator[tuple[Node, PartitionLog]]:
    config = TransactionConfig(transaction_version=version, **options)
    with running_node(path, transaction_config=config) as node:
        yield node, node.topics.create("t", 2).partitions[0]


def test_every_request_of_a_transactional_producer_is_answered_as_by_kafka(tmp_path: Path) -> None:
    """``test_apache_kafka_answers`` sends the same requests to Apache Kafka."""
    with running(tmp_path) as (node, _):
        node.topics.create("one", 1)
        asks = partial(ask, node)

        def retrying(api: ApiKey, version: int, **values: Any) -> Any:
            while "concurrent_transactions" in repr(answer := asks(api, version, **values)):
                pass
            return answer

        check_answers(asks, retrying, "one", "x")


def test_a_commit_drops_offsets_of_a_deleted_topic(tmp_path: Path) -> None:
    with running(tmp_path) as (node, _):
        producer = AskingProducer(partial(ask, node), 2)
        assert producer.init() is NONE
        assert producer.commit_offset(5) is NONE
        ask(node, ApiKey.DELETE_TOPICS, 5, topic_names=["t"])
        node.topics.create("t", 1)
        assert producer.end(committed=True) is NONE
        assert node.groups.committed("g") == {}
    with running_node(tmp_path) as node:
        assert node.groups.committed("g") == {}


def test_transactions_are_described_and_listed(tmp_path: Path) -> None:
    def listed(**filters: Any) -> list[str]:
        answer = ask(node, ApiKey.LIST_TRANSACTIONS, 2, **{"duration_filter": -1, **filters})
        assert answer.error_code is NONE
        return [found.transactional_id for found in answer.transaction_states]

    with running(tmp_path) as (node, _):
        producers = {name: AskingProducer(partial(ask, node), 2, name) for name in ("a", "ab", "c")}
        for producer in producers.values():
            producer.init()
        producers["a"].send(b"1", partition=1)
        producers["c"].send(b"1")
        producers["c"].end(committed=True)
        ids = ["a", "c", "unknown", ""]
        answer = ask(node, ApiKey.DESCRIBE_TRANSACTIONS, 0, transactional_ids=ids)
        first, ended, unknown, empty = answer.transaction_states
        assert [(t.topic, tuple(t.partitions)) for t in first.topics] == [("t", (1,))]
        states = [(found.transaction_state, found.producer_epoch) for found in (first, ended)]
        assert states == [("Ongoing", 0), ("CompleteCommit", 1)]
        assert unknown.error_code is ErrorCode.transactional_id_not_found
        assert empty.error_code is ErrorCode.invalid_request
        assert listed() == ["a", "ab", "c"]
        assert listed(state_filters=["Empty", "Ongoing"]) == ["a", "ab"]
        assert listed(producer_id_filters=[producers["c"].identity.producer_id]) == ["c"]
        assert listed(transactional_id_pattern="a.*") == ["a", "ab"]
        assert listed(duration_filter=3_600_000, state_filters=["Ongoing"]) == []
        answer = ask(node, ApiKey.LIST_TRANSACTIONS, 1, state_filters=["Odd"], duration_filter=-1)
        assert answer.unknown_state_filters == ("Odd",)
        invalid = ask(node, ApiKey.LIST_TRANSACTIONS, 2, transactional_id_pattern="(")
        assert invalid.error_code is ErrorCode.invalid_regular_expression
        topics = [{"name": "t", "partition_indexes": [0, 1]}]
        (topic,) = ask(node, ApiKey.DESCRIBE_PRODUCERS, 0, topics=topics).topics
        begun = [part.active_producers[0].current_txn_start_offset for part in topic.partitions]
        assert begun == [-1, 0]


def test_a_marker_is_retried_after_a_disk_error(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with running(tmp_path) as (node, log):
        producer = AskingProducer(partial(ask, node), 2, "x\n\x1b[31m")
        producer.init()
        producer.send(b"a")
        log.fail_with(OSError("no disk"))
        assert producer.end(committed=True) is NONE, "the commit is already stored"
        assert producer.send(b"b") is ErrorCode.concurrent_transactions
        log.fail_with(None)
        while producer.init(producer.identity) is ErrorCode.concurrent_transactions:
            pass  # until the marker is retried
        assert [record.value for record in log.records(committed=True)] == [b"a"]
    lines = [record.getMessage() for record in caplog.records]
    assert [text for text in lines if "has no marker of" in text]
    assert all(text.isprintable() for text in lines), "the client's name is escaped"


def test_the_latest_offset_by_isolation_level(tmp_path: Path) -> None:
    def latest(level: int) -> int:
        part = {"partition_index": 0, "timestamp": -1, "current_leader_epoch": -1}
        topics = [{"name": "t", "partitions": [part]}]
        answer = ask(node, ApiKey.LIST_OFFSETS, 9, isolation_level=level, topics=topics)
        return int(answer.topics[0].partitions[0].offset)

    with running(tmp_path) as (node, log):
        producer = AskingProducer(partial(ask, node), 2)
        producer.init()
        producer.send(b"a")
        assert (latest(0), latest(1)) == (1, 0)
        producer.end(committed=False)
        assert latest(1) == log.end_offset == 2


# Every request in every state, in both versions ---------------------------------------------------


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
IDENTITY = ProducerIdentity(7, 4)
LAST, HIGHEST = 32766, 32767
FRESH_ID = 1000


def transaction(state: TransactionState, **changes: Any) -> Transaction:
    in_use = state in (ONGOING, *PREPARED)
    found = Transaction(
        "x",
        IDENTITY.producer_id,
        IDENTITY.producer_epoch,
        60_000,
        state,
        frozenset({T0}) if in_use else frozenset(),
        started_ms=-1 if state is EMPTY else 1_000,
        updated_ms=1_000,
        last_epoch=3,
    )
    return replace(found, **changes)


def outcome(act: Any) -> TransactionState | ErrorCode:
    """The next state, or the error code."""
    try:
        found: Transaction = act()
    except BrokerError as error:
        return ErrorCode(error.code)
    return found.state


def end(
    current: Transaction,
    epoch: int,
    committed: bool,
    version: int,
    producer_id: int = 7,
    **options: bool,
) -> TransactionState | ErrorCode:
    identity = ProducerIdentity(producer_id, epoch)
    return outcome(
        lambda: rules.end(current, identity, committed, version, NOW, lambda: FRESH_ID, **options)
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
# KAFKA-20785 changes one answer: to a commit after an abort by the coordinator.
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
def test_end_txn_in_every_state(
    state: TransactionState, version: int, ends: dict[Any, str], options: dict[str, bool]
) -> None:
    """Results of commit and abort in the epochs 2 to 5; the current one is 4."""
    current = transaction(state)
    for epoch, both in zip(range(2, 6), ends[state].split(), strict=True):
        for committed, letter in zip((True, False), both, strict=True):
            found = end(current, epoch, committed, version, **options)
            assert found == OUTCOMES[letter], (epoch, committed)
    other = end(current, 4, True, version, producer_id=8, **options)
    assert other == (WAIT if version == 2 and state in PREPARED else UNMAPPED)


def test_in_version_2_each_end_begins_an_epoch() -> None:
    ended = rules.end(transaction(ONGOING), IDENTITY, True, 2, NOW, lambda: FRESH_ID)
    assert (ended.producer_epoch, ended.last_epoch, ended.client_version) == (5, 4, 2)
    assert ended.partitions == {T0}
    done = rules.complete(ended, NOW)
    assert (done.state, done.producer_epoch, done.partitions) == (COMPLETE_COMMIT, 5, frozenset())
    assert rules.identity_after(done) == (7, 5)
    by_version_1 = rules.end(transaction(ONGOING), IDENTITY, True, 0, NOW, lambda: FRESH_ID)
    assert by_version_1.producer_epoch == 4


def test_the_last_epoch_is_followed_by_a_new_producer_id() -> None:
    current = transaction(ONGOING, producer_epoch=LAST)
    identity = ProducerIdentity(7, LAST)
    ended = rules.end(current, identity, False, 2, NOW, lambda: FRESH_ID)
    assert (ended.producer_id, ended.producer_epoch) == (7, HIGHEST)
    assert rules.identity_after(ended) == (FRESH_ID, 0)
    assert end(ended, LAST, False, 2) == WAIT
    successor = rules.identity_after(ended)  # returned before the markers are written
    for act in (
        lambda: rules.add_partitions(ended, successor, (T0,), NOW),
        lambda: rules.verify(ended, successor, T0),
        lambda: rules.end(ended, successor, False, 2, NOW, lambda: 1),
    ):
        assert outcome(act) == WAIT
    done = rules.complete(ended, NOW)
    assert (done.producer_id, done.producer_epoch, done.previous_producer_id) == (FRESH_ID, 0, 7)
    # The response was lost: the request is repeated with the old id.
    assert rules.end(done, identity, False, 2, NOW, lambda: 1) is done
    assert rules.identity_after(done) == (FRESH_ID, 0)
    assert end(done, LAST, True, 2) == ILLEGAL
    assert end(done, LAST - 1, False, 2) == UNMAPPED


def initialize(current: Transaction, identity: ProducerIdentity | None = None) -> Transaction:
    return rules.initialize(current, 9_000, identity, NOW, lambda: FRESH_ID)


@pytest.mark.parametrize("state", [EMPTY, COMPLETE_COMMIT, COMPLETE_ABORT])
def test_a_new_producer_gets_the_next_epoch(state: TransactionState) -> None:
    found = initialize(transaction(state))
    assert (found.state, found.producer_id, found.producer_epoch) == (EMPTY, 7, 5)
    assert (found.last_epoch, found.timeout_ms, found.started_ms) == (-1, 9_000, -1)


@pytest.mark.parametrize("state", PREPARED)
def test_a_new_producer_waits_while_the_last_transaction_ends(state: TransactionState) -> None:
    assert outcome(lambda: initialize(transaction(state))) == WAIT
    assert outcome(lambda: initialize(transaction(state), IDENTITY)) == WAIT
    other = ProducerIdentity(8, 0)
    assert outcome(lambda: initialize(transaction(state), other)) == WAIT


def test_a_producer_can_bump_its_own_epoch() -> None:
    found = initialize(transaction(COMPLETE_ABORT), IDENTITY)
    assert (found.producer_epoch, found.last_epoch) == (5, 4)
    again = initialize(found, IDENTITY)
    assert (again.producer_epoch, again.last_epoch) == (5, 4), "the response was lost: no new epoch"
    for epoch in (2, 6):
        zombie = ProducerIdentity(7, epoch)
        assert outcome(lambda identity=zombie: initialize(found, identity)) == FENCED
    # After another producer, the previous epoch is fenced.
    assert outcome(lambda: initialize(initialize(found), IDENTITY)) == FENCED
    assert outcome(lambda: initialize(found, ProducerIdentity(8, 4))) == FENCED


def test_exhausted_epochs_lead_to_a_new_id() -> None:
    exhausted = transaction(EMPTY, producer_epoch=LAST)
    for identity in (None, ProducerIdentity(7, LAST)):
        found = initialize(exhausted, identity)
        assert (found.producer_id, found.producer_epoch) == (FRESH_ID, 0)
        assert found.previous_producer_id == 7
    assert found.last_epoch == LAST
    again = initialize(found, ProducerIdentity(7, LAST))
    assert (again.producer_id, again.producer_epoch) == (FRESH_ID, 0)
    fenced = transaction(COMPLETE_ABORT, producer_epoch=HIGHEST)
    assert initialize(fenced).producer_id == FRESH_ID


def test_a_new_transactional_id_starts_at_epoch_0() -> None:
    fresh = Transaction("x", 7, -1, 60_000)
    for identity in (None, ProducerIdentity(99, 12)):
        assert initialize(fresh, identity).producer_epoch == 0


@pytest.mark.parametrize("version", [0, 1, 2])
def test_fencing_aborts_in_an_epoch_of_its_own(version: int) -> None:
    fenced = rules.fence(transaction(ONGOING), version, NOW)
    assert (fenced.state, fenced.producer_epoch) == (PREPARE_ABORT, 5)
    assert fenced.last_epoch == (4 if version == 2 else -1)
    done = rules.complete(fenced, NOW)
    # Requests of the slow producer: its transaction has ended.
    if version == 2:
        assert end(done, 4, True, 2) == ILLEGAL
        assert end(done, 4, False, 2) == COMPLETE_ABORT
    else:
        assert end(done, 4, True, 0) == FENCED
        assert end(done, 4, False, 0) == FENCED
    assert initialize(done).producer_epoch == 6


@pytest.mark.parametrize("state", STATES)
def test_adding_partitions_in_every_state(state: TransactionState) -> None:
    current = transaction(state)

    def add(identity: ProducerIdentity, *partitions: TopicPartition) -> Transaction:
        return rules.add_partitions(current, identity, partitions, NOW)

    others = [ProducerIdentity(8, 4), ProducerIdentity(7, 3), ProducerIdentity(7, 5)]
    if state in PREPARED:
        for identity in (IDENTITY, *others):
            assert outcome(lambda identity=identity: add(identity, T1)) == WAIT
        return
    for identity, code in zip(others, (UNMAPPED, FENCED, FENCED), strict=True):
        assert outcome(lambda identity=identity: add(identity, T1)) == code
    found = add(IDENTITY, T1)
    assert found.state is ONGOING
    assert found.partitions == ({T0, T1} if state is ONGOING else {T1})
    assert found.started_ms == (1_000 if state is ONGOING else NOW)
    if state is ONGOING:
        assert add(IDENTITY, T0) is current, "nothing to write"


def test_partitions_are_verified() -> None:
    def code(current: Transaction, identity: ProducerIdentity, where: TopicPartition) -> int:
        with pytest.raises(BrokerError) as caught:
            rules.verify(current, identity, where)
        return caught.value.code

    rules.verify(transaction(ONGOING), IDENTITY, T0)
    assert code(transaction(ONGOING), IDENTITY, T1) == ErrorCode.transaction_abortable
    assert code(transaction(EMPTY), IDENTITY, T0) == ErrorCode.transaction_abortable
    assert code(transaction(PREPARE_COMMIT), IDENTITY, T0) == WAIT
    assert code(transaction(ONGOING), ProducerIdentity(7, 3), T0) == FENCED
    assert code(transaction(ONGOING), ProducerIdentity(8, 4), T0) == UNMAPPED


def test_in_the_highest_epoch_a_transaction_can_be_ended_but_not_fenced() -> None:
    current = transaction(ONGOING, producer_epoch=HIGHEST)
    assert outcome(lambda: rules.fence(current, 2, NOW)) == ErrorCode.unknown_server_error
    identity = ProducerIdentity(7, HIGHEST)
    ended = rules.end(current, identity, True, 2, NOW, lambda: FRESH_ID)
    assert (ended.state, ended.producer_epoch) == (PREPARE_COMMIT, HIGHEST)
    with pytest.raises(ValueError, match="epoch 32768"):
        transaction(EMPTY).becomes(EMPTY, 0, producer_epoch=HIGHEST + 1)
    with pytest.raises(struct.error):
        transaction_value(replace(current, producer_epoch=HIGHEST + 1), 2)
