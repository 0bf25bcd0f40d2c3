"""Requests to coordinators: their order, and the effect of each answer."""

from __future__ import annotations

from typing import Any

import pytest

from kprod import KafkaProducer
from kprod.errors import (
    BrokerError,
    ErrorCode,
    KprodError,
    ProducerClosedError,
    ProducerFencedError,
    TransactionAbortableError,
    TransactionError,
    UnsupportedVersionError,
)
from kprod.sender.coordination import Ask, finding
from kprod.sender.partitions import LAST_EPOCH
from kprod.sender.retry import AGAIN, LATE, Reaction, reaction
from kprod.sender.transactions import Call, OffsetFetch, State
from kprod.transactional.two_phase_commit import TwoPhaseCommit
from kprod.transport.tcp import TcpBackend
from kprod.types import TopicPartition
from kprod.wire.control import InitProducerIdReply
from kprod.wire.transactions import (
    GROUP,
    TRANSACTION,
    CommittedOffset,
    CoordinatorReply,
    EndTxnReply,
    GroupMetadata,
    OffsetsReply,
    PartitionsReply,
)
from kprod.wire.versions import ApiKey
from tests.support.ports import free_port
from tests.support.raising_backend import RaisingBackend
from tests.unit.sender.coordinating import BOTH, MEMBER, OFFSETS, T0, T1, Dialogue


def ready(implicit: bool) -> Dialogue:
    dialogue = Dialogue(implicit=implicit)
    dialogue.initialize()
    return dialogue


@BOTH
def test_the_next_transaction_waits_a_moment_for_the_markers_of_the_last(implicit: bool) -> None:
    """Brokers are still writing its markers: a request before these would wait for long."""
    dialogue = ready(implicit)
    dialogue.begin(T0)
    dialogue.transactions.start(Call.COMMIT)
    ask = dialogue.expect(ApiKey.END_TXN)
    dialogue.coordination.take(ask, dialogue.reply(ask), 0.0)
    dialogue.collect(Call.COMMIT)
    dialogue.transactions.begin()
    assert not dialogue.coordination.admits(T1)
    pending = dialogue.transactions.start_offsets(OFFSETS, MEMBER)
    assert dialogue.next_ask() is None
    dialogue.coordination.release_hold()
    assert dialogue.reopened[-1] == T1 if implicit else dialogue.due().about == (T1,)
    assert dialogue.coordination.admits(T1) is implicit
    assert dialogue.due() is not None
    assert not pending.ended.is_open


def test_the_back_off_grows_while_the_coordinator_keeps_moving() -> None:
    """Finding the coordinator must not reset the back-off."""
    dialogue = Dialogue(implicit=True)
    dialogue.transactions.start(Call.INIT)
    pauses = []
    for now in (0.0, 1000.0, 2000.0):
        ask = dialogue.expect(ApiKey.INIT_PRODUCER_ID)
        refused = dialogue.reply(ask, ErrorCode.NOT_COORDINATOR)
        dialogue.coordination.answered(ask, refused, now)
        pauses.append(dialogue.coordination.due - now)
        dialogue.coordination.answered(finding(ask), CoordinatorReply(0, None, 1, 0), now)
    assert pauses[0] < pauses[1] < pauses[2]


class Throttling:
    """A network whose broker throttles until ``until``."""

    def __init__(self, until: float) -> None:
        self.until = until
        self.waiting: dict[Any, None] = {}
        self.asked: list[ApiKey] = []

    def broker(self, _node_id: int) -> Throttling:
        return self

    def any_usable(self, _now: float) -> Throttling:
        return self

    def ready(self, _broker: Throttling, now: float) -> bool:
        return now >= self.until

    def throttled_for(self, now: float) -> float:
        return max(0.0, self.until - now)

    def last_error(self, now: float) -> KprodError | None:
        return KprodError("throttled") if now < self.until else None

    def send(self, ask: Ask, _now: float) -> None:
        self.asked.append(ask.api)


def test_a_throttling_coordinator_is_waited_for() -> None:
    """It must not be looked up again meanwhile."""
    network = Throttling(until=5.0)
    dialogue = Dialogue(implicit=True, network=network)
    dialogue.transactions.start(Call.INIT)
    coordination = dialogue.coordination
    coordination.answered(finding(dialogue.due()), CoordinatorReply(0, None, 1, 0), 0.0)
    for now in (0.0, 1.0, 4.0, 5.0):
        coordination.fire(now)
    assert coordination in network.waiting
    assert network.asked == [ApiKey.INIT_PRODUCER_ID]


class Unreachable(Throttling):
    """A network that has lost the connection to its broker until ``until``."""

    def throttled_for(self, _now: float) -> float:
        return 0.0


@pytest.mark.parametrize("node_id", [1, 7], ids=["known", "unknown"])
def test_a_lost_coordinator_is_found_again_after_a_back_off(node_id: int) -> None:
    network = Unreachable(until=1000.0)
    dialogue = Dialogue(implicit=True, network=network)
    dialogue.transactions.start(Call.INIT)
    coordination = dialogue.coordination
    coordination.answered(finding(dialogue.due()), CoordinatorReply(0, None, node_id, 0), 0.0)
    dialogue.updates.clear()
    now = 500.0
    coordination.fire(now)
    assert dialogue.updates == [{"brokers": True}], "it may be at another address by now"
    for _ in range(3):
        coordination.fire(now)
    assert network.asked == []
    coordination.fire(now + 2.0)
    assert network.asked == [ApiKey.FIND_COORDINATOR]


def test_a_coordinator_that_is_no_broker_causes_a_metadata_request() -> None:
    dialogue = Dialogue(implicit=True)
    dialogue.transactions.start(Call.INIT)
    found = finding(dialogue.due())
    dialogue.coordination.answered(found, CoordinatorReply(0, None, 1, 0), 0.0)
    assert dialogue.updates == []
    dialogue.coordination.answered(found, CoordinatorReply(0, None, 7, 0), 0.0)
    assert dialogue.updates == [{"brokers": True}]


@BOTH
def test_an_empty_transaction_sends_no_request(implicit: bool) -> None:
    dialogue = ready(implicit)
    for call in (Call.COMMIT, Call.ABORT):
        dialogue.begin()
        dialogue.transactions.start(call)
        assert dialogue.next_ask() is None
        dialogue.collect(call)
    assert dialogue.producer.epoch == 0


def test_old_brokers_commit_offsets_only_without_member_metadata() -> None:
    """Java: "Broker doesn't support group metadata commit API", before TxnOffsetCommit 3."""
    dialogue = ready(implicit=False)
    dialogue.begin()
    pending = dialogue.transactions.start_offsets(OFFSETS, GroupMetadata("group", 7, "m"))
    dialogue.answer(ApiKey.ADD_OFFSETS_TO_TXN)
    ask = dialogue.expect(ApiKey.TXN_OFFSET_COMMIT)
    with pytest.raises(UnsupportedVersionError, match=r"before Apache Kafka 2\.5") as raised:
        ask.encode(2, 1, "client")
    dialogue.coordination.failed(ask, raised.value, 0.0, sent=False)
    with pytest.raises(TransactionAbortableError, match="give the id of the group alone"):
        dialogue.transactions.collect(pending)
    dialogue.abort()
    dialogue.begin()
    dialogue.transactions.start_offsets(OFFSETS, MEMBER)
    dialogue.answer(ApiKey.ADD_OFFSETS_TO_TXN)
    assert dialogue.expect(ApiKey.TXN_OFFSET_COMMIT).encode(2, 1, "client")


@pytest.mark.parametrize("sent", [False, True])
def test_an_abort_without_added_partitions_sends_no_request(sent: bool) -> None:
    dialogue = ready(implicit=False)
    dialogue.transactions.begin()
    dialogue.coordination.admits(T0)
    if sent:
        assert dialogue.answer(ApiKey.ADD_PARTITIONS_TO_TXN, 29) is None
    else:
        dialogue.lose(ApiKey.ADD_PARTITIONS_TO_TXN, sent=False)
    dialogue.transactions.start(Call.ABORT)
    assert dialogue.next_ask() is None
    dialogue.collect(Call.ABORT)


@pytest.mark.parametrize(
    ("code", "expected"),
    [
        (47, TransactionAbortableError),
        (87, TransactionAbortableError),
        (120, TransactionAbortableError),
        (45, TransactionAbortableError),
        (31, TransactionError),
        (53, TransactionError),
        (90, ProducerFencedError),
    ],
)
@BOTH
def test_a_failed_record_fails_its_transaction_by_its_error_code(
    implicit: bool, code: int, expected: type[TransactionError]
) -> None:
    dialogue = ready(implicit)
    dialogue.begin(T0)
    dialogue.coordination.record_failed(BrokerError(code, "t-0"))
    with pytest.raises(expected) as caught:
        dialogue.transactions.start(Call.COMMIT)
    assert type(caught.value) is expected
    if expected is TransactionAbortableError:
        dialogue.abort()
        dialogue.begin(T0)


@BOTH
def test_an_abort_succeeds_although_the_group_coordinator_is_refused(implicit: bool) -> None:
    """The call that sends offsets times out, and the application aborts."""
    dialogue = ready(implicit)
    dialogue.begin(T0)
    dialogue.transactions.start_offsets(OFFSETS, MEMBER)
    if not implicit:
        dialogue.answer(ApiKey.ADD_OFFSETS_TO_TXN)
    ask = finding(dialogue.due())
    assert ask.coordinator == (GROUP, "group")
    dialogue.transactions.start(Call.ABORT)
    assert dialogue.coordination.take(ask, CoordinatorReply(30, None, -1, 0), 0.0) is None
    assert dialogue.transactions.state is State.ABORTING
    dialogue.abort()
    dialogue.begin(T0)


@pytest.mark.parametrize("call", [Call.COMMIT, Call.ABORT])
def test_a_completed_transaction_succeeds_although_the_next_epoch_is_refused(call: Call) -> None:
    """Another producer has taken over since: later calls raise that."""
    dialogue = ready(implicit=False)
    dialogue.transactions.begin()
    dialogue.coordination.admits(T0)
    dialogue.lose(ApiKey.ADD_PARTITIONS_TO_TXN)
    dialogue.answer(ApiKey.ADD_PARTITIONS_TO_TXN)
    dialogue.transactions.start(call)
    dialogue.answer(ApiKey.END_TXN)
    dialogue.answer(ApiKey.INIT_PRODUCER_ID, ErrorCode.PRODUCER_FENCED)
    dialogue.collect(call)
    with pytest.raises(ProducerFencedError):
        dialogue.transactions.begin()


def test_the_root_cause_of_several_refused_partitions_is_raised() -> None:
    dialogue = ready(implicit=False)
    dialogue.transactions.begin()
    for number in range(3):
        dialogue.coordination.admits(TopicPartition("t", number))
    ask = dialogue.expect(ApiKey.ADD_PARTITIONS_TO_TXN)
    results = [("t", 0, 55), ("t", 1, 29), ("t", 2, 55)]
    assert dialogue.coordination.take(ask, PartitionsReply(results, 0), 0.0) is None
    with pytest.raises(TransactionAbortableError, match=r"TOPIC_AUTHORIZATION_FAILED.*t-1"):
        dialogue.transactions.start(Call.COMMIT)


ADDING = [ApiKey.ADD_PARTITIONS_TO_TXN, ApiKey.ADD_OFFSETS_TO_TXN, ApiKey.TXN_OFFSET_COMMIT]
KINDS = [ApiKey.INIT_PRODUCER_ID, *ADDING, ApiKey.END_TXN]
CODES = [-1, 3, 7, 14, 15, 16, 22, 25, 29, 30, 31, 35, 42, 47, 48, 49, 50, 51, 53, 55, 59]
CODES += [82, 90, 120, 9999]


@pytest.mark.parametrize("third", [False, True], ids=["at-once", "third-answer"])
@pytest.mark.parametrize("code", CODES)
@pytest.mark.parametrize("kind", KINDS)
@BOTH
def test_every_code_in_every_answer(implicit: bool, kind: ApiKey, code: int, third: bool) -> None:
    """The state is as in the table of reactions, and after an abort the producer goes on."""
    if implicit and kind in (ApiKey.ADD_PARTITIONS_TO_TXN, ApiKey.ADD_OFFSETS_TO_TXN):
        return  # protocol 1 only
    dialogue = with_request_due(kind, implicit=implicit)
    if third:
        for _ in range(2):
            assert dialogue.answer(kind, 14) is Reaction.RETRY
    left = dialogue.answer(kind, code)
    expected = reaction(kind, code, implicit=implicit)
    state = dialogue.transactions.state
    if expected in AGAIN:
        assert left is expected
        assert dialogue.due().api is kind
        return
    assert left is None
    if kind is ApiKey.END_TXN and implicit and code in LATE:
        assert not dialogue.expect(ApiKey.END_TXN).about
    elif expected is Reaction.ABORT:
        assert state is State.ABORTABLE_ERROR
        hear_all(dialogue)
        dialogue.abort()
        dialogue.begin(T0)
        dialogue.commit()
    else:
        assert state is State.FATAL_ERROR
        fenced = isinstance(dialogue.transactions.error, ProducerFencedError)
        assert fenced is (expected is Reaction.FENCED)


def with_request_due(kind: ApiKey, *, implicit: bool) -> Dialogue:
    """A dialogue in which a request of this kind is due."""
    dialogue = Dialogue(implicit=implicit)
    if kind is ApiKey.INIT_PRODUCER_ID:
        dialogue.transactions.start(Call.INIT)
        return dialogue
    dialogue.initialize()
    dialogue.transactions.begin()
    if kind is ApiKey.ADD_PARTITIONS_TO_TXN:
        dialogue.coordination.admits(T0)
    elif kind is ApiKey.END_TXN:
        dialogue.coordination.admits(T0)
        if not implicit:
            dialogue.answer(ApiKey.ADD_PARTITIONS_TO_TXN)
        dialogue.transactions.start(Call.COMMIT)
    else:
        dialogue.transactions.start_offsets(OFFSETS, MEMBER)
        if kind is ApiKey.TXN_OFFSET_COMMIT and not implicit:
            dialogue.answer(ApiKey.ADD_OFFSETS_TO_TXN)
    return dialogue


def hear_all(dialogue: Dialogue) -> None:
    """A failed commit must raise before another call is possible."""
    try:
        dialogue.transactions.check(Call.ABORT)
    except Exception:
        with pytest.raises(TransactionAbortableError):
            dialogue.collect(Call.COMMIT)


@pytest.mark.parametrize(
    "kind", [ApiKey.ADD_PARTITIONS_TO_TXN, ApiKey.ADD_OFFSETS_TO_TXN, ApiKey.TXN_OFFSET_COMMIT]
)
def test_the_first_request_of_a_transaction_is_retried_soon(kind: ApiKey) -> None:
    dialogue = with_request_due(kind, implicit=False)
    assert dialogue.answer(kind, 51) is Reaction.RETRY_SOON
    assert dialogue.answer(kind, 14) is Reaction.RETRY


# Commits in protocol 2 after the coordinator has aborted the transaction --------------------------


TOO_LATE = pytest.mark.parametrize("code", [48, 90], ids=["before-KAFKA-20785", "KAFKA-20785"])
"""Answers of brokers to a commit after the coordinator has aborted the transaction."""


def with_refused_commit(code: int) -> Dialogue:
    """A dialogue in protocol 2 whose commit was answered with ``code``."""
    dialogue = Dialogue(implicit=True)
    dialogue.initialize()
    dialogue.begin(T0)
    dialogue.transactions.start(Call.COMMIT)
    assert dialogue.expect(ApiKey.END_TXN).about
    dialogue.answer(ApiKey.END_TXN, code)
    return dialogue


@TOO_LATE
def test_a_transaction_ended_by_its_coordinator_can_be_aborted_in_protocol_2(code: int) -> None:
    """An abort, repeated until it is answered, shows that the producer was not fenced."""
    dialogue = with_refused_commit(code)
    assert dialogue.answer(ApiKey.END_TXN, 51) is Reaction.RETRY
    dialogue.lose(ApiKey.END_TXN)
    asked = dialogue.expect(ApiKey.END_TXN)
    assert not asked.about
    dialogue.coordination.take(asked, dialogue.reply(asked), 0.0)
    with pytest.raises(TransactionAbortableError):
        dialogue.collect(Call.COMMIT)
    dialogue.transactions.start(Call.ABORT)
    assert dialogue.next_ask() is None, "already aborted"
    dialogue.collect(Call.ABORT)
    assert dialogue.producer.epoch == 1
    dialogue.begin(T0)
    dialogue.commit()


@BOTH
@pytest.mark.parametrize("call", [Call.COMMIT, Call.PREPARE])
def test_a_renamed_producer_starts_as_a_new_one(implicit: bool, call: Call) -> None:
    """Without the partitions of its last transaction, and without its epoch."""
    dialogue = ready(implicit)
    dialogue.begin(T0)
    dialogue.finish(call)
    dialogue.transactions.rename("other")
    assert not dialogue.coordination.admits(T0)
    dialogue.transactions.start(Call.INIT)
    asked = dialogue.expect(ApiKey.INIT_PRODUCER_ID)
    assert asked.coordinator == (TRANSACTION, "other")
    assert asked.fields == ("other", 60_000)
    dialogue.coordination.take(asked, InitProducerIdReply(0, 41, 7, 0), 0.0)
    dialogue.collect(Call.INIT)
    assert dialogue.producer[:2] == (41, 7)
    assert dialogue.coordination.transactional_id == "other"
    dialogue.begin(T0)
    dialogue.commit()
    assert dialogue.producer[1] == (8 if implicit else 7)


def test_no_transaction_begins_in_the_last_epoch() -> None:
    """Nothing could fence its producer: an open transaction would stay open for ever."""
    dialogue = ready(implicit=True)
    dialogue.begin(T0)
    dialogue.transactions.start(Call.ABORT)
    asked = dialogue.expect(ApiKey.END_TXN)
    dialogue.coordination.take(asked, EndTxnReply(0, (40, LAST_EPOCH), 0), 0.0)
    asked = dialogue.expect(ApiKey.INIT_PRODUCER_ID)
    assert asked.fields[2:] == (40, LAST_EPOCH)
    dialogue.coordination.take(asked, InitProducerIdReply(0, 41, 0, 0), 0.0)
    dialogue.collect(Call.ABORT)
    dialogue.begin(T0)
    assert dialogue.producer[:2] == (41, 0)


# Fetching committed offsets of a group during a transaction ---------------------------------------


FOUND = CommittedOffset("t", 0, 4, b"note", 0)


def start_fetch(dialogue: Dialogue) -> OffsetFetch:
    fetch = OffsetFetch("group", (T0,))
    dialogue.transactions.fetch(fetch)
    return fetch


def answer_fetch(dialogue: Dialogue, *codes: int, whole: int = 0) -> Reaction | None:
    ask = dialogue.expect(ApiKey.OFFSET_FETCH)
    offsets = [FOUND._replace(error_code=code) for code in codes]
    return dialogue.coordination.take(ask, OffsetsReply(offsets, whole, 0), 0.0)


def test_offsets_are_fetched_in_every_state_without_changing_it() -> None:
    dialogue = Dialogue(implicit=True)
    fetch = start_fetch(dialogue)
    assert dialogue.transactions.under_way
    assert answer_fetch(dialogue, 0) is None
    assert fetch.ended.is_open
    assert fetch.found == [FOUND]
    assert not dialogue.transactions.under_way
    dialogue.transactions.start(Call.INIT)
    fetch = start_fetch(dialogue)
    answer_fetch(dialogue, 0)
    assert fetch.found == [FOUND]
    dialogue.expect(ApiKey.INIT_PRODUCER_ID)


@pytest.mark.parametrize("found", [False, True], ids=["coordinator", "offsets"])
def test_a_repeated_offset_fetch_does_not_block_the_transaction(found: bool) -> None:
    """88: the offset may become stable by the commit of this transaction."""
    dialogue = Dialogue(implicit=True)
    dialogue.initialize()
    dialogue.begin(T0)
    fetch = start_fetch(dialogue)
    if found:
        assert answer_fetch(dialogue, 88) is Reaction.RETRY
    else:  # the coordinator is unknown; the transaction does not see that
        dialogue.coordination.leaves(finding(dialogue.expect(ApiKey.OFFSET_FETCH)))
    dialogue.transactions.start(Call.COMMIT)
    dialogue.answer(ApiKey.END_TXN)
    dialogue.collect(Call.COMMIT)
    assert answer_fetch(dialogue, 0) is None
    assert fetch.found == [FOUND]


def test_an_unstable_offset_is_an_error_for_a_fetch_that_does_not_wait() -> None:
    dialogue = Dialogue(implicit=True)
    fetch = OffsetFetch("group", (T0,), waits=False)
    dialogue.transactions.fetch(fetch)
    assert answer_fetch(dialogue, 88) is None
    assert [found.error_code for found in fetch.found] == [88]


def test_a_refused_offset_fetch_does_not_affect_the_transaction() -> None:
    dialogue = Dialogue(implicit=True)
    fetch = start_fetch(dialogue)
    assert answer_fetch(dialogue, whole=30) is None
    assert isinstance(fetch.error, BrokerError)
    assert fetch.error.code == 30
    fetch = start_fetch(dialogue)
    error = UnsupportedVersionError("OFFSET_FETCH: the broker offers versions 0 to 5")
    dialogue.coordination.failed(dialogue.due(), error, 0.0, sent=False)
    assert fetch.error is error
    assert dialogue.transactions.error is None


@pytest.mark.parametrize("state", [State.INITIALIZING, State.IN_TRANSACTION, State.COMMITTING])
def test_a_late_refusal_of_an_abandoned_offset_fetch_is_ignored(state: State) -> None:
    """The caller gives up while the coordinator of its group is being looked up."""
    dialogue = Dialogue(implicit=True)
    dialogue.transactions.start(Call.INIT)
    if state is not State.INITIALIZING:
        dialogue.answer(ApiKey.INIT_PRODUCER_ID)
        dialogue.collect(Call.INIT)
        dialogue.begin(T0)
    if state is State.COMMITTING:
        dialogue.transactions.start(Call.COMMIT)
    fetch = start_fetch(dialogue)
    ask = finding(dialogue.due())
    dialogue.transactions.end_fetch(fetch)
    assert dialogue.coordination.take(ask, CoordinatorReply(30, None, -1, 0), 0.0) is None
    assert dialogue.transactions.state is state


def test_close_fails_unanswered_offset_fetches() -> None:
    dialogue = Dialogue(implicit=True)
    fetch = start_fetch(dialogue)
    dialogue.transactions.close()
    assert isinstance(fetch.error, ProducerClosedError)
    assert not dialogue.transactions.fetches


def test_offset_fetches_fail_when_the_sender_ends_with_an_exception() -> None:
    network = RaisingBackend(TcpBackend())
    producer = KafkaProducer(
        bootstrap_servers=f"127.0.0.1:{free_port()}",
        transactional_id="tx",
        transport=lambda **_: network,
    )
    network.failing = {"poll"}
    for _ in range(2):  # one that waits, and a later one
        with pytest.raises(ProducerClosedError):
            TwoPhaseCommit(producer).committed_offsets("group", [T0], 20)
    producer.close()
