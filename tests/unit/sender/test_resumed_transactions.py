"""What one process has prepared is ended by another one, under the first one's id and epoch."""

from __future__ import annotations

import logging

import pytest

from kprod import KafkaProducer
from kprod.errors import IllegalStateError, InvalidRecordError, ProducerFencedError
from kprod.sender.transactions import Call, State
from kprod.transactional.two_phase_commit import PreparedTransaction, TwoPhaseCommit
from kprod.wire.versions import ApiKey
from tests.support.ports import free_port
from tests.unit.sender.coordinating import T0, Dialogue

BOTH = pytest.mark.parametrize("implicit", [False, True], ids=["protocol-1", "protocol-2"])
PREPARED = (40, 7)


def resumed(implicit: bool) -> Dialogue:
    dialogue = Dialogue(implicit=implicit)
    dialogue.transactions.resume(PREPARED)
    return dialogue


@BOTH
@pytest.mark.parametrize("call", [Call.COMMIT, Call.ABORT])
def test_it_is_ended_by_one_request(implicit: bool, call: Call) -> None:
    dialogue = resumed(implicit)
    assert dialogue.next_ask() is None
    dialogue.transactions.start(call)
    ask = dialogue.expect(ApiKey.END_TXN)
    assert ask.fields == ("tx", PREPARED, call is Call.COMMIT)
    assert (ask.version_cap is None) is implicit
    dialogue.coordination.take(ask, dialogue.reply(ask), 0.0)
    if not implicit:  # the numbers of its partitions are not known here
        assert dialogue.expect(ApiKey.INIT_PRODUCER_ID).fields[2:] == PREPARED
        dialogue.answer(ApiKey.INIT_PRODUCER_ID)
    dialogue.hear(call)
    assert dialogue.transactions.state is State.READY
    assert dialogue.producer.epoch == PREPARED[1] + 1
    dialogue.begin(T0)
    dialogue.commit()


def test_the_protocol_is_the_one_that_brokers_tell_before_the_end() -> None:
    """Nobody was asked yet when the transaction is taken up."""
    dialogue = resumed(implicit=False)
    dialogue.transactions.start(Call.COMMIT)
    assert dialogue.due().version_cap is not None
    dialogue.upgrade(2)
    assert dialogue.due().version_cap is None


@BOTH
def test_one_that_was_taken_over_is_lost(implicit: bool, caplog: pytest.LogCaptureFixture) -> None:
    """The caller asked what became of it, so the answer is no error of the log's."""
    caplog.set_level(logging.INFO, "kprod")
    dialogue = resumed(implicit)
    dialogue.transactions.start(Call.COMMIT)
    dialogue.answer(ApiKey.END_TXN, 90)
    if implicit:  # it may have been the coordinator itself: an abort tells
        dialogue.answer(ApiKey.END_TXN, 90)
    with pytest.raises(ProducerFencedError):
        dialogue.hear(Call.COMMIT)
    (line,) = caplog.records
    assert (line.levelname, "PRODUCER_FENCED" in line.message) == ("INFO", True)


def test_nothing_is_resumed_but_by_a_new_producer() -> None:
    dialogue = Dialogue(implicit=True)
    dialogue.initialize()
    with pytest.raises(IllegalStateError):
        dialogue.transactions.resume(PREPARED)
    assert dialogue.transactions.state is State.READY


@pytest.mark.parametrize("call", [Call.INIT, Call.BEGIN, Call.SEND, Call.OFFSETS, Call.PREPARE])
def test_what_is_resumed_can_only_be_ended(call: Call) -> None:
    dialogue = resumed(implicit=True)
    with pytest.raises(IllegalStateError):
        dialogue.transactions.check(call)
    assert dialogue.transactions.refusal() is not None


@pytest.mark.parametrize(("level", "now"), [(1, 2), (2, 1)], ids=["upgraded", "downgraded"])
def test_a_transaction_ends_under_the_level_it_was_written_under(level: int, now: int) -> None:
    """The cluster has another ``transaction.version`` by then."""
    dialogue = Dialogue(implicit=now == 2)
    dialogue.transactions.resume(PREPARED, level)
    dialogue.transactions.start(Call.COMMIT)
    ask = dialogue.expect(ApiKey.END_TXN)
    assert ask.version_cap == (None if level == 2 else 4)
    dialogue.coordination.take(ask, dialogue.reply(ask), 0.0)
    if level == 1:
        dialogue.answer(ApiKey.INIT_PRODUCER_ID)
    dialogue.coordination.release_hold()
    dialogue.hear(Call.COMMIT)
    assert dialogue.transactions.state is State.READY


def test_a_prepared_transaction_as_text() -> None:
    known = PreparedTransaction("a:b", 40, 7, level=2, began_ms=1_700_000_000_000)
    bare = PreparedTransaction("a:b", 40, 7)
    for prepared in (known, bare, known._replace(level=1), known._replace(began_ms=None)):
        assert PreparedTransaction.parse(str(prepared)) == prepared
    assert PreparedTransaction.parse("40:7:a:b") == bare, "the form before"
    for wrong in ("", "v2", "40:7", "40:7:", "v2:40:7:2:3:", "v2:40:x:::a", "-1:7:a", "v2:1:2:3:a"):
        with pytest.raises(InvalidRecordError, match="is not a prepared transaction"):
            PreparedTransaction.parse(wrong)


@pytest.mark.parametrize(("producer_id", "epoch"), [(2**63, 0), (40, 2**15), (-1, 0), (40, -1)])
def test_numbers_that_no_producer_has_are_refused(producer_id: int, epoch: int) -> None:
    """The sender could not write them: its turn would break off."""
    with pytest.raises(InvalidRecordError, match="is not a prepared transaction"):
        PreparedTransaction.parse(f"v2:{producer_id}:{epoch}:::tx")
    nobody = f"127.0.0.1:{free_port()}"
    producer = KafkaProducer(bootstrap_servers=nobody, transactional_id="tx")
    with pytest.raises(InvalidRecordError, match="is not a prepared transaction"):
        TwoPhaseCommit(producer).resume(PreparedTransaction("tx", producer_id, epoch))
    producer.close()
