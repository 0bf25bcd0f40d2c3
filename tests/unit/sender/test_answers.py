"""Produce answers that say more, less or other than was asked, and topics named by their id."""

from __future__ import annotations

from dataclasses import replace
from uuid import UUID

import pytest

from kprod.wire.versions import ApiKey
from tests.support.scripted_cluster import Answer, Heard, ScriptedBroker, ScriptedCluster
from tests.support.sender_rig import rig_of


@pytest.fixture
def broker() -> ScriptedBroker:
    return ScriptedCluster(topics={"t": [1, 1], "other": [1]}).add(1)


def as_if_asked(*partitions: int, topic: str = "t") -> Answer:
    """Answer as if the request had named these partitions, with its own records in each."""

    def answer(broker: ScriptedBroker, heard: Heard) -> bytes:
        body = heard.body
        (asked,) = body.topic_data
        (part,) = asked.partition_data
        parts = tuple(replace(part, index=n) for n in partitions)
        topics = (replace(asked, name=topic, partition_data=parts),)
        return broker.usual(heard._replace(body=replace(body, topic_data=topics)))

    return answer


@pytest.mark.parametrize(
    "answer",
    [
        pytest.param(as_if_asked(0, 1), id="one more"),
        pytest.param(as_if_asked(1, 0), id="one more, first"),
        pytest.param(as_if_asked(0, 0), id="one twice"),
    ],
)
def test_what_was_not_asked_for_is_passed_by(
    broker: ScriptedBroker, answer: Answer, caplog: pytest.LogCaptureFixture
) -> None:
    broker.next(ApiKey.PRODUCE, answer)
    rig = rig_of(broker.cluster)
    future = rig.queue()
    assert rig.run(lambda: future.is_done, seconds=5)
    assert future.get(0).offset == 0
    assert "not asked for, t-1" in caplog.text or "not asked for, t-0" in caplog.text
    assert broker.connections == 1
    broker.next(ApiKey.PRODUCE, *[answer] * 20)
    assert all(rig.run(rig.queue().succeeded, seconds=1) for _ in range(20))
    assert caplog.text.count("not asked for") == 1


def garbage(_: ScriptedBroker, heard: Heard) -> bytes:
    """The right correlation id, and then nonsense."""
    message = heard.correlation_id.to_bytes(4, "big") + b"\xff" * 40
    return len(message).to_bytes(4, "big") + message


@pytest.mark.parametrize("api", [ApiKey.PRODUCE, ApiKey.METADATA, ApiKey.INIT_PRODUCER_ID])
def test_an_answer_that_cannot_be_read_is_asked_for_again(
    broker: ScriptedBroker, api: ApiKey
) -> None:
    broker.next(api, garbage, garbage)
    rig = rig_of(broker.cluster)
    future = rig.queue()
    assert rig.run(lambda: future.is_done, seconds=5)
    assert future.succeeded()
    assert broker.count(api) == 3


# Topic ids ----------------------------------------------------------------------------------------


def versions(broker: ScriptedBroker) -> list[int]:
    return [heard.version for heard in broker.heard if heard.api is ApiKey.PRODUCE]


@pytest.fixture
def modern(broker: ScriptedBroker) -> ScriptedBroker:
    """It names topics by id."""
    broker.offered[ApiKey.PRODUCE] = (3, 13)
    broker.cluster.topic_ids = {"t": UUID(int=1)}
    return broker


def test_topics_are_named_by_id_where_the_broker_does(modern: ScriptedBroker) -> None:
    rig = rig_of(modern.cluster)
    futures = [rig.queue(partition=number) for number in range(2)]
    assert rig.run(lambda: all(future.is_done for future in futures))
    assert [future.get(0).offset for future in futures] == [0, 0]
    assert set(versions(modern)) == {13}


def test_a_topic_whose_id_is_not_told_is_named_by_name(modern: ScriptedBroker) -> None:
    modern.cluster.topic_ids.clear()
    rig = rig_of(modern.cluster)
    assert rig.run(rig.queue().succeeded)
    assert versions(modern) == [12]
