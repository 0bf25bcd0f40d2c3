"""A batch that may be stored and is refused as out of sequence: what comes after it tells."""

from __future__ import annotations

from typing import Any

import pytest

from kprod.types import Persisted
from kprod.wire.versions import ApiKey
from kprod_ext.futures import FutureRecordMetadata
from tests.support.scripted_cluster import (
    Answer,
    Heard,
    ScriptedBroker,
    ScriptedCluster,
    refuse,
)
from tests.support.sender_rig import SenderRig, rig_of

NOT_LEADER, OUT_OF_ORDER, DUPLICATE = 6, 45, 46


def store_silently(broker: ScriptedBroker, heard: Heard) -> None:
    """The batch is stored, and no answer comes."""
    broker.produce_answer(heard, broker.cluster.store)


def store_and_cut(broker: ScriptedBroker, heard: Heard) -> None:
    """The batch is stored, and the connection breaks."""
    store_silently(broker, heard)
    raise ConnectionResetError("Connection reset by peer")


def recognise(offset: int) -> Answer:
    """The batch is known, and where it is."""

    def answer(broker: ScriptedBroker, heard: Heard) -> bytes:
        return broker.produce_answer(heard, lambda tp, batches: (0, offset))

    return answer


def two_unanswered(
    *after: Answer, brokers: int = 1, **options: Any
) -> tuple[SenderRig, list[FutureRecordMetadata]]:
    """A sender whose two batches are stored, with both answers lost.

    Sent again, the first of them is refused as out of sequence; ``after`` is what follows that.
    """
    cluster = ScriptedCluster(topics={"t": [1]})
    leader, *_ = [cluster.add(number) for number in range(1, brokers + 1)]
    rig = rig_of(cluster, batch_size=100, **options)
    start = rig.queue(b"0" * 60)  # only a leader that has acknowledged one gets two at a time
    assert rig.run(lambda: start.is_done)
    answers = [store_silently, store_and_cut, refuse(OUT_OF_ORDER), *after]
    leader.next(ApiKey.PRODUCE, *answers)
    return rig, [rig.queue(b"1" * 60), rig.queue(b"2" * 60)]


def test_a_repetition_that_is_recognised_proves_what_was_sent_before_it() -> None:
    rig, (first, second) = two_unanswered(recognise(2))
    ended: list[str] = []
    first.add_callback(lambda metadata: ended.append("first"))
    second.add_callback(lambda metadata: ended.append("second"))
    assert rig.run(lambda: first.is_done and second.is_done)
    assert first.succeeded()
    assert first.get(0).offset == -1  # the broker did not say
    assert ended == ["first", "second"]
    assert rig.cluster.values("t") == [b"0" * 60, b"1" * 60, b"2" * 60]


@pytest.mark.parametrize("answer", [recognise(1), recognise(0), refuse(DUPLICATE)])
def test_an_offset_too_low_for_what_was_sent_before_proves_nothing(answer: Answer) -> None:
    """The log was cut short and takes any batch for the first; or the offset is not told."""
    rig, (first, second) = two_unanswered(answer)
    assert rig.run(lambda: first.is_done and second.is_done)
    assert second.succeeded()
    assert first.exception is not None
    assert first.exception.persisted is Persisted.MAYBE
