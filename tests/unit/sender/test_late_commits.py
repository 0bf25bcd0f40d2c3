"""A commit in protocol 2 that the coordinator's own abort was faster than, and one of a zombie."""

from __future__ import annotations

import pytest

from kprod.errors import ConnectionLost, TransactionAbortableError
from kprod.sender.transaction_requests import EndTransaction, Reaction
from kprod.sender.transactions import Call
from tests.unit.sender.coordinating import T0, Dialogue

LOST = ConnectionLost("the connection broke")
TOO_LATE = pytest.mark.parametrize("code", [48, 90], ids=["before-KAFKA-20785", "KAFKA-20785"])
"""What brokers answer to a commit that the coordinator's own abort was faster than."""


def refused(code: int) -> Dialogue:
    """In protocol 2 a commit was answered with ``code``."""
    dialogue = Dialogue(implicit=True)
    dialogue.initialize()
    dialogue.begin(T0)
    dialogue.transactions.start(Call.COMMIT)
    assert dialogue.expect(EndTransaction).committed
    dialogue.answer(EndTransaction, code)
    return dialogue


@TOO_LATE
def test_a_transaction_ended_by_its_coordinator_can_be_aborted_in_protocol_2(code: int) -> None:
    """The coordinator takes an abort: nobody was fenced, and the producer knows its epoch."""
    dialogue = refused(code)
    asked = dialogue.expect(EndTransaction)
    assert not asked.committed
    dialogue.coordination.take(asked, dialogue.reply(asked))
    with pytest.raises(TransactionAbortableError):
        dialogue.hear(Call.COMMIT)
    dialogue.transactions.start(Call.ABORT)
    assert dialogue.settle(), "it was aborted already"
    dialogue.hear(Call.ABORT)
    assert dialogue.producer.epoch == 1
    dialogue.begin(T0)
    dialogue.commit()


@TOO_LATE
def test_whether_it_was_fenced_is_asked_until_it_is_told(code: int) -> None:
    dialogue = refused(code)
    assert dialogue.answer(EndTransaction, 51) is Reaction.RETRY
    dialogue.coordination.failed(dialogue.expect(EndTransaction), LOST, 0.0, sent=True)
    asked = dialogue.expect(EndTransaction)
    assert not asked.committed
    dialogue.coordination.take(asked, dialogue.reply(asked))
    with pytest.raises(TransactionAbortableError):
        dialogue.hear(Call.COMMIT)
