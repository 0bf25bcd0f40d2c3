"""The partitioners that an option names: keys by the hash that goes with the name, or by turns."""

from __future__ import annotations

import zlib
from collections import Counter
from concurrent.futures import ThreadPoolExecutor

import pytest

from kprod.errors import PartitionError
from kprod.intake.configured_partitioner import (
    partitioner_for,
)
from kprod.intake.partitioner import Partitioner, RoundRobinPartitioner
from tests.unit.intake.topics import topic

BATCH = 1000
MANY = topic(10_000)


@pytest.mark.parametrize(
    ("name", "chosen"),
    [("default", 4), ("crc32", zlib.crc32(b"kafka") % 12), ("fnv1a", 5)],
)
@pytest.mark.parametrize("form", [bytes, bytearray, memoryview])
def test_a_key_goes_by_the_hash_of_the_name(
    name: str, chosen: int, form: type[bytes | bytearray | memoryview]
) -> None:
    chooser = partitioner_for(name, BATCH)
    assert chooser.choose(topic(12), form(b"kafka")) == chosen
    assert chooser.choose(topic(12, leaderless=range(12)), form(b"kafka")) == chosen


def stays_together(chooser: Partitioner, key: bytes | None) -> bool:
    """Whether records with this key go where records without one go, and with them elsewhere."""
    seen = set()
    for _ in range(5):
        chosen = chooser.choose(MANY, None)
        if chooser.choose(MANY, key) != chosen:
            return False
        seen.add(chosen)
        chooser.appended(MANY, chosen, BATCH, True)
    return len(seen) > 1


@pytest.mark.parametrize(
    ("name", "together"), [("default", False), ("crc32", True), ("fnv1a", False)]
)
def test_an_empty_key(name: str, together: bool) -> None:
    assert stays_together(partitioner_for(name, BATCH), b"") is together


def test_keys_can_be_ignored() -> None:
    assert stays_together(partitioner_for("default", BATCH, ignore_keys=True), b"kafka")


def test_topics_take_turns_apart() -> None:
    chooser, one, other = RoundRobinPartitioner(), topic(3, name="one"), topic(3, name="other")
    assert [chooser.choose(t, None) for t in (one, other, one, other)] == [0, 0, 1, 1]


def test_partitions_without_a_leader_have_no_turn() -> None:
    chooser, where = RoundRobinPartitioner(), topic(5, leaderless=[0, 3])
    assert [chooser.choose(where, None) for _ in range(4)] == [1, 2, 4, 1]


def test_all_have_a_turn_when_none_has_a_leader() -> None:
    chooser, where = RoundRobinPartitioner(), topic(2, leaderless=range(2))
    assert [chooser.choose(where, None) for _ in range(3)] == [0, 1, 0]


def test_a_topic_without_partitions_has_no_turns() -> None:
    with pytest.raises(PartitionError, match="topic 't' has no partitions"):
        RoundRobinPartitioner().choose(topic(0), None)


def test_threads_take_turns() -> None:
    chooser, where = RoundRobinPartitioner(), topic(8)
    with ThreadPoolExecutor(4) as pool:
        chosen = Counter(pool.map(lambda _: chooser.choose(where, None), range(8000)))
    assert chosen == dict.fromkeys(range(8), 1000)
