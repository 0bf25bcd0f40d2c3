"""Keys go where Kafka's own clients put them; records without a key stay together for a batch."""

from __future__ import annotations

import random

from kprod.cluster.snapshot import TopicInfo
from kprod.intake.partitioner import AHEAD, DefaultPartitioner
from kprod.intake.queue_loads import QueueLoads
from tests.unit.intake.topics import topic

BATCH = 1000


def partitioner(seed: int = 1) -> DefaultPartitioner:
    return DefaultPartitioner(BATCH, random.Random(seed))


def drawn(chooser: DefaultPartitioner, where: TopicInfo, rounds: int) -> list[int]:
    """The partitions of ``rounds`` periods, each ended by a full batch."""
    periods = []
    for _ in range(rounds):
        periods.append(chooser.choose(where, None))
        chooser.appended(where, periods[-1], BATCH, True)
    return periods


def ahead_of(chooser: DefaultPartitioner) -> list[int]:
    """The sticky partition, and those that were drawn ahead."""
    sticky = chooser.sticky("t")
    return [] if sticky is None else [each.partition for each in sticky.chain()]


def test_bytes_in_other_partitions_do_not_count() -> None:
    chooser, where = partitioner(), topic(1000)
    first = chooser.choose(where, None)
    chooser.appended(where, (first + 1) % 1000, 10 * BATCH, True)
    assert chooser.choose(where, None) == first


def test_one_is_drawn_at_a_time_where_brokers_may_have_to_be_avoided() -> None:
    loads = QueueLoads(availability_timeout=1.0)
    chooser = DefaultPartitioner(BATCH, random.Random(1), loads=loads)
    chooser.choose(topic(1000), None)
    sticky = chooser.sticky("t")
    assert sticky is not None
    assert sticky.following is None


def test_one_that_was_drawn_ahead_and_lost_its_leader_is_left_out() -> None:
    chooser, where = partitioner(), topic(1000)
    first = chooser.choose(where, None)
    sticky = chooser.sticky("t")
    assert sticky is not None
    assert sticky.following is not None
    lost = sticky.following.partition
    chooser.appended(where, first, BATCH, True)
    assert chooser.choose(topic(1000, leaderless=[lost]), None) != lost


def test_none_of_those_drawn_ahead_stays_without_a_leader() -> None:
    """Whoever has the first of them goes on to the others without asking."""
    chooser, where = partitioner(), topic(1000)
    chooser.choose(where, None)
    last = ahead_of(chooser)[-1]
    chooser.choose(topic(1000, leaderless=[last]), None)
    assert last not in ahead_of(chooser)
    assert len(ahead_of(chooser)) == AHEAD


def test_all_partitions_are_as_good_when_none_has_a_leader() -> None:
    where = topic(6, leaderless=range(6))
    chooser = partitioner()
    assert chooser.choose(where, None) == chooser.choose(where, None)
    assert set(drawn(chooser, where, 200)) == set(range(6))
