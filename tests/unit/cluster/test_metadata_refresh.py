"""When metadata is requested, and for which topics."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from kprod.clock import ExponentialBackoff, SystemClock
from kprod.cluster.metadata import Metadata, MetadataListener
from kprod.cluster.snapshot import LeaderHint
from kprod.errors import ConnectionLost, KprodTimeoutError
from kprod.types import Broker, TopicPartition
from kprod.wire.control import MetadataReply, PartitionReplies, PartitionReply, TopicReply
from tests.support.steady_random import SteadyRandom
from tests.unit.cluster.replies import numbered, reply, topic

NEVER = float("inf")
LOST = ConnectionLost("broker-1:9092: Connection refused")


@pytest.fixture
def metadata() -> Metadata:
    return Metadata(
        clock=SystemClock(),
        max_age=300,
        max_idle=60,
        backoff=ExponentialBackoff(0.1, 1.0, SteadyRandom()),
    )


def want(metadata: Metadata, name: str, partition: int | None = None) -> None:
    """Request a topic without waiting."""
    with pytest.raises(KprodTimeoutError):
        metadata.await_topic(name, 0, lambda: None, partition)


def learn(metadata: Metadata, answer: MetadataReply, now: float) -> list[str]:
    """Request and answer once; the requested topics."""
    asked = metadata.wanted(now)
    metadata.answered(answer, now)
    return asked


CHANGES: dict[str, Callable[[Metadata], object]] = {
    "new topic": lambda metadata: want(metadata, "other"),
    "new partition": lambda metadata: want(metadata, "t", 7),
    "request": lambda metadata: metadata.request_update(),
    "connection": lambda metadata: metadata.connection_failed("broker 1", LOST),
    "rebootstrap": lambda metadata: metadata.rebootstrap(),
}


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
def test_changes_make_updates_due(metadata: Metadata, change: Callable[[Metadata], object]) -> None:
    want(metadata, "t")
    learn(metadata, reply(topic("t")), 0.0)
    assert [metadata.due(5.0), metadata.due(6.0)] == [295.0, 294.0]
    reports: list[None] = []
    metadata.subscribe(MetadataListener(due=lambda: reports.append(None)))
    change(metadata)
    assert metadata.due(6.0) == 0.0
    assert reports, "otherwise the sender sleeps until the former time"
    metadata.wanted(6.0)
    assert [metadata.due(6.0), metadata.due(7.0)] == [NEVER, NEVER]
    metadata.failed(LOST, 7.0)
    assert metadata.due(7.0) == pytest.approx(0.1)
    learn(metadata, reply(topic("t")), 8.0)
    assert metadata.due(9.0) == 299.0


def test_the_first_use_of_a_topic_is_reported(metadata: Metadata) -> None:
    reports: list[None] = []
    metadata.subscribe(MetadataListener(due=lambda: reports.append(None)))
    metadata.used({"t": 0.0})
    assert len(reports) == 1
    metadata.used({"t": 1.0})
    assert len(reports) == 1


def test_a_requested_update_keeps_the_minimum_interval(metadata: Metadata) -> None:
    want(metadata, "t")
    learn(metadata, reply(topic("t")), 0.0)
    metadata.request_update()
    assert metadata.due(0.01) == pytest.approx(0.09)
    assert metadata.due(5.0) == 0.0


def test_an_update_requested_while_one_is_under_way_follows_it(metadata: Metadata) -> None:
    want(metadata, "t")
    asked = metadata.wanted(0.0)
    metadata.request_update()
    metadata.answered(reply(topic("t")), 0.0)
    assert asked == ["t"]
    assert metadata.due(5.0) == 0.0


@pytest.mark.parametrize("fails", [True, False], ids=["failures", "unchanged metadata"])
def test_the_back_off_grows_without_new_metadata(metadata: Metadata, *, fails: bool) -> None:
    want(metadata, "t")
    delays = []
    for _ in range(6 if fails else 7):
        metadata.wanted(0.0)
        if fails:
            metadata.failed(LOST, 0.0)
        else:
            metadata.answered(reply(topic("t", error=3)), 0.0)
        delays.append(metadata.due(0.0))
    assert delays[-6:] == pytest.approx([0.1, 0.2, 0.4, 0.8, 1.0, 1.0])


def test_a_new_topic_does_not_skip_the_back_off_after_a_failure(metadata: Metadata) -> None:
    want(metadata, "t")
    metadata.wanted(0.0)
    metadata.failed(LOST, 0.0)
    want(metadata, "u")
    assert metadata.due(0.0) == pytest.approx(0.1)


def test_changed_metadata_resets_the_back_off(metadata: Metadata) -> None:
    want(metadata, "t")
    for _ in range(7):
        learn(metadata, reply(topic("t", error=3)), 0.0)
    learn(metadata, reply(topic("t", [1], epoch=5)), 0.0)
    metadata.request_update()
    assert metadata.due(0.0) == pytest.approx(0.1)


@pytest.mark.parametrize("answer", [reply(nodes=()), reply(topic("t"), error=129)])
def test_an_unusable_answer_counts_as_a_failure(metadata: Metadata, answer: MetadataReply) -> None:
    want(metadata, "t")
    metadata.wanted(0.0)
    assert not metadata.answered(answer, 0.0)
    assert metadata.snapshot.topic("t") is None
    assert metadata.due(0.0) == pytest.approx(0.1)
    assert metadata.due(0.1) == 0.0


def test_only_new_topics_are_requested_while_the_rest_is_fresh(metadata: Metadata) -> None:
    want(metadata, "old")
    learn(metadata, reply(topic("old")), 0.0)
    want(metadata, "new")
    assert learn(metadata, reply(topic("new")), 1.0) == ["new"]
    assert metadata.snapshot.topic("old") is not None, "a partial answer replaced everything"


@pytest.mark.parametrize("reason", ["requested", "old"])
def test_a_full_update_requests_every_topic(metadata: Metadata, reason: str) -> None:
    want(metadata, "old")
    learn(metadata, reply(topic("old")), 0.0)
    want(metadata, "new")
    if reason == "requested":
        metadata.request_update()
    assert metadata.wanted(1.0 if reason == "requested" else 300.0) == ["new", "old"]


def test_a_topic_being_created_is_requested_until_it_exists(metadata: Metadata) -> None:
    want(metadata, "t")
    learn(metadata, reply(topic("t", error=5)), 0.0)
    assert metadata.due(10.0) == 0.0
    assert learn(metadata, reply(topic("t")), 10.0) == ["t"]
    assert metadata.due(11.0) > 200


@pytest.mark.parametrize(("code", "again"), [(5, True), (9, True), (72, True), (0, False)])
def test_a_partition_with_an_error_is_requested_until_it_recovers(
    metadata: Metadata, code: int, again: bool
) -> None:
    want(metadata, "t")
    parts = [PartitionReply(0, 0, 1, 0), PartitionReply(code, 1, -1, -1)]
    learn(metadata, reply(TopicReply(0, "t", None, PartitionReplies(parts))), 0.0)
    assert (metadata.due(1.0) == 0.0) == again
    learn(metadata, reply(topic("t", [1, 1])), 1.0)
    assert metadata.due(2.0) > 200


@pytest.mark.parametrize("code", [17, 29])
def test_a_permanently_refused_topic_is_not_requested_again(metadata: Metadata, code: int) -> None:
    want(metadata, "t")
    learn(metadata, reply(topic("t", error=code)), 0.0)
    assert metadata.due(1000.0) == NEVER
    assert metadata.dropped == {"t"}, "what is known of it can be forgotten"


def test_a_leader_hint_is_used_until_metadata_is_newer(metadata: Metadata) -> None:
    tp = TopicPartition("t", 0)
    metadata.answered(reply(topic("t", [1], epoch=4)), 0.0)
    metadata.take_leader_hints({tp: LeaderHint(2, 5)})
    metadata.answered(reply(topic("t", [1], epoch=4)), 0.0)
    leader = metadata.snapshot.leader(tp)
    assert leader is not None
    assert (leader.leader_id, leader.leader_epoch) == (2, 5)


@pytest.mark.parametrize(
    ("numbers", "leaders"),
    [
        ({-1: 1, 0: 1, 1: 2}, [1, 2]),
        ({0: 1, 1: 2, 10**9: 1}, [1, 2]),
        ({2: 3, 0: 1}, [1, -1, 3]),  # partition 1 is missing
    ],
)
def test_impossible_partition_numbers_are_ignored(
    metadata: Metadata, numbers: dict[int, int], leaders: list[int]
) -> None:
    metadata.answered(reply(numbered("t", numbers)), 0.0)
    found = metadata.snapshot.topic("t")
    assert found is not None
    assert [info.leader_id for info in found.partitions] == leaders


def test_impossible_brokers_and_topics_without_a_name_are_ignored(metadata: Metadata) -> None:
    answer = reply(topic(None), topic(None, error=100), topic("t"))
    answer.brokers.append(Broker(-1, "bad", 9092, None))
    metadata.answered(answer, 0.0)
    assert sorted(metadata.snapshot.brokers) == [1, 2, 3]
    assert [known.name for known in metadata.snapshot] == ["t"]
