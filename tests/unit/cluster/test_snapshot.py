"""Snapshots of the cluster are immutable; the next one takes only newer data."""

from __future__ import annotations

import tracemalloc
from collections.abc import Sequence

import pytest

from kprod.cluster.snapshot import (
    ClusterSnapshot,
    LeaderHint,
    PartitionInfo,
    Partitions,
    TopicInfo,
    topic_info,
)
from kprod.types import Broker, TopicPartition
from kprod.wire.control import (
    PartitionReplies,
    PartitionReply,
    TopicReply,
    decode_metadata_response,
)
from tests.support import hostile_answers
from tests.support.entered import entered

ONE, TWO = Broker(1, "h1", 9092, "r1"), Broker(2, "h2", 9092)
BROKERS = {1: ONE, 2: TWO}
OLD, NEW = b"1" * 16, b"2" * 16
TP = TopicPartition("t", 0)


def topic(
    leaders: Sequence[tuple[int, int]], *, name: str = "t", topic_id: bytes | None = OLD
) -> TopicInfo:
    """A topic with these leaders and epochs for partitions 0, 1, ..."""
    parts = (PartitionInfo(number, *leader) for number, leader in enumerate(leaders))
    return TopicInfo(name, topic_id, Partitions.of(parts))


def snapshot(*topics: TopicInfo) -> ClusterSnapshot:
    return ClusterSnapshot().with_topics(topics, BROKERS)


def leaders(view: ClusterSnapshot, name: str = "t") -> list[tuple[int, int]]:
    found = view.topic(name)
    assert found is not None
    return [(info.leader_id, info.leader_epoch) for info in found.partitions]


@pytest.mark.parametrize(
    "tp", [TopicPartition("t", 1), TopicPartition("t", 9), TopicPartition("other", 0)]
)
def test_an_unknown_leader_is_none(tp: TopicPartition) -> None:
    assert snapshot(topic([(1, 7), (-1, -1)])).leader(tp) is None


def test_earlier_snapshots_do_not_change() -> None:
    before = snapshot(topic([(1, 7)]))
    before.with_topics([topic([(2, 8)])], {2: TWO})
    before.with_leaders({TP: LeaderHint(2, 8)})
    before.without_topics(["t"])
    assert leaders(before) == [(1, 7)]
    assert before.brokers == BROKERS


@pytest.mark.parametrize(
    ("reported", "expected"),
    [
        pytest.param((2, 8), (2, 8), id="newer"),
        pytest.param((2, 7), (2, 7), id="the same"),
        pytest.param((2, 6), (1, 7), id="older"),
        pytest.param((2, -1), (2, -1), id="without an epoch"),
        pytest.param((-1, 8), (-1, 8), id="newer, without a leader"),
    ],
)
def test_a_leader_is_replaced_unless_the_new_epoch_is_older(
    reported: tuple[int, int], expected: tuple[int, int]
) -> None:
    view = snapshot(topic([(1, 7)])).with_topics([topic([reported])], BROKERS)
    assert leaders(view) == [expected]


def test_a_recreated_topic_ignores_earlier_epochs() -> None:
    recreated = topic([(2, 0), (2, 0)], topic_id=NEW)
    view = snapshot(topic([(1, 7), (1, 7), (1, 7)])).with_topics([recreated], BROKERS)
    assert leaders(view) == [(2, 0), (2, 0)]
    assert view.topic_id("t") == NEW


def test_brokers_are_replaced_as_a_whole_and_topics_removed_by_name() -> None:
    view = snapshot(topic([(1, 7)])).with_topics([], {2: TWO})
    assert dict(view.brokers) == {2: TWO}
    assert view.leader(TP) is None
    view = snapshot(topic([(1, 7)]), topic([(1, 7)], name="u")).without_topics(["u", "never"])
    assert [known.name for known in view] == ["t"]


def test_another_cluster_replaces_leaders_of_any_epoch() -> None:
    first = ClusterSnapshot().with_topics([topic([(1, 7)])], BROKERS, "first")
    other = topic([(1, 7)], name="other")
    both = first.with_topics([other], BROKERS, "first")
    view = both.with_topics([topic([(2, 0)])], {2: TWO}, "second")
    assert leaders(view) == [(2, 0)]
    assert view.cluster_id == "second"
    assert view.topics["other"].available == (), "its leaders are of the first cluster"


def test_a_missing_cluster_id_is_not_a_change_of_cluster() -> None:
    first = ClusterSnapshot().with_topics([topic([(1, 7)])], BROKERS, "first")
    view = first.with_topics([topic([(2, 0)])], BROKERS, None)
    assert (leaders(view), view.cluster_id) == ([(1, 7)], "first")


@pytest.mark.parametrize(
    ("tp", "hint"),
    [
        pytest.param(TP, LeaderHint(2, 7), id="not newer"),
        pytest.param(
            TP, LeaderHint(2, 7, Broker(2, "elsewhere", 9092)), id="not newer, with an address"
        ),
        pytest.param(TP, LeaderHint(2, 6), id="older"),
        pytest.param(TP, LeaderHint(9, 8), id="unknown broker"),
        pytest.param(TP, LeaderHint(-1, 8), id="nobody"),
        pytest.param(TopicPartition("t", 5), LeaderHint(2, 8), id="unknown partition"),
        pytest.param(TopicPartition("u", 0), LeaderHint(2, 8), id="unknown topic"),
    ],
)
def test_an_outdated_or_unknown_hint_changes_nothing(tp: TopicPartition, hint: LeaderHint) -> None:
    view = snapshot(topic([(1, 7)]))
    assert view.with_leaders({tp: hint}) is view


def test_leader_hints_are_applied_together_with_addresses_of_brokers() -> None:
    view = snapshot(topic([(1, 7), (1, 7)]), topic([(1, 7)], name="u"), topic([(1, 7)], name="v"))
    moved_broker, there = Broker(2, "elsewhere", 9092), Broker(3, "h3", 9092)
    hints = {
        TP: LeaderHint(2, 8, moved_broker),
        TopicPartition("t", 1): LeaderHint(1, 7),
        TopicPartition("u", 0): LeaderHint(3, 9, there),
    }
    moved = view.with_leaders(hints)
    assert leaders(moved) == [(2, 8), (1, 7)]
    assert leaders(moved, "u") == [(3, 9)]
    assert moved.topic("v") is view.topic("v")
    assert moved.brokers == {1: ONE, 2: moved_broker, 3: there}


def test_moving_leaders_takes_linear_time() -> None:
    assert work_of_moving(2000) < 15 * work_of_moving(200)


def work_of_moving(count: int) -> int:
    """Calls of Python functions while so many leaders of a topic move."""
    view = snapshot(topic([(1, 7)] * count))
    hints = {TopicPartition("t", n): LeaderHint(2, 8) for n in range(count)}
    return entered(lambda: view.with_leaders(hints))


def test_replicas_belong_to_their_partition_in_any_order() -> None:
    parts = [PartitionReply(0, 2, 5, 0, (5, 6), (5,)), PartitionReply(0, 0, 6, 0, (6, 7), (7, 6))]
    response = TopicReply(0, "t", None, PartitionReplies(parts))
    view = ClusterSnapshot().with_topics([topic_info(response)], {})
    partitions = view.topics["t"].partitions
    assert [partitions.replicas(number) for number in range(3)] == [(6, 7), (), (5, 6)]
    assert [partitions.in_sync(number) for number in range(3)] == [(7, 6), (), (5,)]
    moved = partitions.changed([PartitionInfo(0, 7, 1)])
    assert (moved[0].leader_id, moved.replicas(0)) == (7, (6, 7))


def test_partitions_take_little_memory() -> None:
    """Not much more than the response, which may be hostile or huge."""
    count = 10_000
    partitions = [
        hostile_answers.partition(number, 1_000, hostile_answers.NOBODY) for number in range(count)
    ]
    answer = hostile_answers.metadata([], [hostile_answers.topic(b"t", partitions)])
    body = memoryview(answer)
    tracemalloc.start()
    try:
        reply = decode_metadata_response(12, body, {"t"})
        view = ClusterSnapshot().with_topics(map(topic_info, reply.topics), {}, None)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert view.topics["t"].partitions[-1] == PartitionInfo(count - 1, 1_000, 0)
    assert len(view.topics["t"].available) == count
    assert peak < 3 * len(body)
