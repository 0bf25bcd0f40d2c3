"""Where little is queued, more is sent: the weights of KIP-794 and what they come from."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterable, Mapping
from itertools import repeat

import pytest

from kprod.cluster.snapshot import TopicInfo
from kprod.intake.partitioner import DefaultPartitioner
from kprod.intake.queue_loads import QueueLoads
from tests.unit.intake.test_partitioners import topic


class Queues:
    """Queues of these lengths, by topic and partition."""

    def __init__(self) -> None:
        self.changes = 0
        self.lengths: dict[str, dict[int, int]] = {}

    def are(self, topic: str, lengths: dict[int, int]) -> None:
        self.changes += 1
        self.lengths[topic] = lengths

    def depths(self, topic: str) -> Mapping[int, int]:
        return self.lengths.get(topic, {})


def loads_of(queued: dict[int, int], topic: str = "t") -> QueueLoads:
    """Loads that know these queues of one topic."""
    loads, queues = QueueLoads(), Queues()
    queues.are(topic, queued)
    loads.watch(queues)
    return loads


def drawn(loads: QueueLoads, where: TopicInfo, times: int = 3000) -> dict[int | None, float]:
    """How large a share each partition gets."""
    rng = random.Random(5)
    counts = Counter(loads.draw(where, rng, times) or repeat(None, times))
    return {partition: count / times for partition, count in counts.items()}


def about(shares: Mapping[int, float]) -> object:
    return pytest.approx(shares, abs=0.05)


@pytest.mark.parametrize("queued", [{}, {0: 2, 1: 2, 2: 2}])
def test_equal_queues_leave_it_to_chance(queued: dict[int, int]) -> None:
    loads = loads_of(queued)
    assert drawn(loads, topic(3)) == {None: 1}


def test_queues_are_looked_at_again_when_they_have_changed() -> None:
    loads, queues, where = QueueLoads(), Queues(), topic(2)
    loads.watch(queues)
    queues.are("t", {0: 9})
    assert drawn(loads, where) == about({0: 1 / 11, 1: 10 / 11})
    queues.are("t", {1: 9})
    assert drawn(loads, where) == about({0: 10 / 11, 1: 1 / 11})
    queues.are("t", {})
    assert drawn(loads, where) == {None: 1}


def test_partitions_without_a_leader_are_not_drawn() -> None:
    loads = loads_of({0: 1})
    assert drawn(loads, topic(4, leaderless=[1])) == about({0: 1 / 5, 2: 2 / 5, 3: 2 / 5})
    assert drawn(loads, topic(4, leaderless=[0])) == {None: 1}
    assert drawn(loads, topic(4, leaderless=range(4))) == {None: 1}


def test_partitions_that_came_or_went_since_the_look() -> None:
    loads = loads_of({0: 1, 1: 1})
    assert drawn(loads, topic(2)) == {None: 1}
    assert drawn(loads, topic(3)) == about({0: 1 / 4, 1: 1 / 4, 2: 2 / 4})
    assert drawn(loads, topic(1)) == {None: 1}


TWO = topic(4, brokers=2)  # 0 and 2 on broker 1, 1 and 3 on broker 2


def looked(loads: QueueLoads, waiting: Iterable[int], *times: float) -> None:
    queues = Queues()
    queues.are("t", {1: 1})
    loads.watch(queues)
    for now in times:
        loads.waiting(list(waiting), now)


def test_a_broker_that_takes_nothing_for_too_long_is_avoided() -> None:
    loads = QueueLoads(availability_timeout=2)
    looked(loads, [2], 10, 12)
    assert drawn(loads, TWO).keys() == {0, 1, 2, 3}
    looked(loads, [2], 12.1)
    assert drawn(loads, TWO) == about({0: 1 / 2, 2: 1 / 2})


def test_a_broker_that_takes_again_is_back_at_once() -> None:
    loads = QueueLoads(availability_timeout=2)
    looked(loads, [2], 10, 13)
    looked(loads, [], 13.5)
    assert drawn(loads, TWO).keys() == {0, 1, 2, 3}
    looked(loads, [2], 14)
    assert drawn(loads, TWO).keys() == {0, 1, 2, 3}


def test_a_broker_that_had_nothing_to_take_is_not_avoided() -> None:
    loads = QueueLoads(availability_timeout=2)
    looked(loads, [2], 10)
    looked(loads, [], 500)
    looked(loads, [2], 1000)
    assert drawn(loads, TWO).keys() == {0, 1, 2, 3}


def test_avoiding_all_leaves_it_to_chance() -> None:
    loads = QueueLoads(availability_timeout=2)
    looked(loads, [1, 2], 10, 13)
    assert drawn(loads, TWO) == {None: 1}


def test_a_load_that_changes_moves_nobody_before_the_batch_is_full() -> None:
    loads, queues, where = QueueLoads(), Queues(), topic(50)
    loads.watch(queues)
    chooser = DefaultPartitioner(100, random.Random(3), loads=loads)
    first = chooser.choose(where, None)
    queues.are("t", {first: 1000})
    chooser.appended(where, first, 99, True)
    assert chooser.choose(where, None) == first
