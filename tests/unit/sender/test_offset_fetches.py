"""What a group has committed, asked beside a transaction."""

from __future__ import annotations

import pytest

from kprod import KafkaProducer
from kprod.errors import BrokerError, ProducerClosedError, UnsupportedVersionError
from kprod.sender.coordination import finding
from kprod.sender.retry import Reaction
from kprod.sender.transactions import Call, OffsetFetch, State
from kprod.transactional.two_phase_commit import TwoPhaseCommit
from kprod.transport.tcp import TcpBackend
from kprod.wire.transactions import CommittedOffset, CoordinatorReply, OffsetsReply
from kprod.wire.versions import ApiKey
from tests.support.mistaken_backend import MistakenBackend
from tests.support.ports import free_port
from tests.unit.sender.coordinating import T0, Dialogue

LONG = 20.0
FOUND = CommittedOffset("t", 0, 4, b"note", 0)


def asked(dialogue: Dialogue) -> OffsetFetch:
    question = OffsetFetch("group", (T0,))
    dialogue.transactions.fetch(question)
    return question


def told(dialogue: Dialogue, *codes: int, whole: int = 0) -> Reaction | None:
    ask = dialogue.expect(ApiKey.OFFSET_FETCH)
    offsets = [FOUND._replace(error_code=code) for code in codes]
    return dialogue.coordination.take(ask, OffsetsReply(offsets, whole, 0), 0.0)


def test_it_is_asked_in_every_state_and_changes_none() -> None:
    dialogue = Dialogue(implicit=True)
    question = asked(dialogue)
    assert dialogue.transactions.under_way
    assert told(dialogue, 0) is None
    assert question.ended.is_open
    assert question.found == [FOUND]
    assert not dialogue.transactions.under_way
    dialogue.transactions.start(Call.INIT)
    question = asked(dialogue)
    told(dialogue, 0)
    assert question.found == [FOUND]
    dialogue.expect(ApiKey.INIT_PRODUCER_ID)


@pytest.mark.parametrize("found", [False, True], ids=["coordinator", "offsets"])
def test_a_question_that_is_repeated_lets_the_transaction_go_on(found: bool) -> None:
    """88: its own commit, it may be, is what makes the offset known."""
    dialogue = Dialogue(implicit=True)
    dialogue.initialize()
    dialogue.begin(T0)
    question = asked(dialogue)
    if found:
        assert told(dialogue, 88) is Reaction.RETRY
    else:  # no coordinator is there yet: nothing is told to the transaction
        dialogue.coordination.leaves(finding(dialogue.expect(ApiKey.OFFSET_FETCH)))
    dialogue.transactions.start(Call.COMMIT)
    dialogue.answer(ApiKey.END_TXN)
    dialogue.hear(Call.COMMIT)
    assert told(dialogue, 0) is None
    assert question.found == [FOUND]


def test_an_offset_that_may_change_is_none_for_who_does_not_wait() -> None:
    dialogue = Dialogue(implicit=True)
    question = OffsetFetch("group", (T0,), waits=False)
    dialogue.transactions.fetch(question)
    assert told(dialogue, 88) is None
    assert [found.error_code for found in question.found] == [88]


def test_a_refusal_ends_the_question_and_nothing_else() -> None:
    dialogue = Dialogue(implicit=True)
    question = asked(dialogue)
    assert told(dialogue, whole=30) is None
    assert isinstance(question.error, BrokerError)
    assert question.error.code == 30
    assert dialogue.transactions.error is None


@pytest.mark.parametrize("state", [State.INITIALIZING, State.IN_TRANSACTION, State.COMMITTING])
def test_a_refusal_that_comes_after_its_caller_has_gone_ends_nothing(state: State) -> None:
    """The caller has given up while a broker is asked for the coordinator of its group."""
    dialogue = Dialogue(implicit=True)
    dialogue.transactions.start(Call.INIT)
    if state is not State.INITIALIZING:
        dialogue.answer(ApiKey.INIT_PRODUCER_ID)
        dialogue.hear(Call.INIT)
        dialogue.begin(T0)
    if state is State.COMMITTING:
        dialogue.transactions.start(Call.COMMIT)
    question = asked(dialogue)
    ask = finding(dialogue.due())
    dialogue.transactions.end_fetch(question)
    assert dialogue.coordination.take(ask, CoordinatorReply(30, None, -1, 0), 0.0) is None
    assert dialogue.transactions.state is state


def test_brokers_that_are_too_old_end_the_question() -> None:
    dialogue = Dialogue(implicit=True)
    question = asked(dialogue)
    error = UnsupportedVersionError("OFFSET_FETCH: the broker offers versions 0 to 5")
    dialogue.coordination.failed(dialogue.due(), error, 0.0, sent=False)
    assert question.error is error


def test_close_ends_those_without_an_answer() -> None:
    dialogue = Dialogue(implicit=True)
    question = asked(dialogue)
    dialogue.transactions.close()
    assert isinstance(question.error, ProducerClosedError)
    assert not dialogue.transactions.fetches


def test_a_sender_that_breaks_off_ends_them() -> None:
    network = MistakenBackend(TcpBackend())
    producer = KafkaProducer(
        bootstrap_servers=f"127.0.0.1:{free_port()}",
        transactional_id="tx",
        transport=lambda **_: network,
    )
    network.failing = {"poll"}
    for _ in range(2):  # one that waits, and one that comes later
        with pytest.raises(ProducerClosedError):
            TwoPhaseCommit(producer).committed_offsets("group", [T0], LONG)
    producer.close()
