"""TopicPartition as confluent_kafka has it."""

from __future__ import annotations

import pickle
from typing import Any

import confluent_kafka
import pytest

from kprod.confluent import (
    OFFSET_BEGINNING,
    OFFSET_END,
    OFFSET_INVALID,
    OFFSET_STORED,
    TopicPartition,
)


@pytest.mark.parametrize(
    "arguments",
    [
        {"topic": "t"},
        {"topic": "t", "partition": 3, "offset": 7, "metadata": "mine", "leader_epoch": 2},
        {"topic": "t", "leader_epoch": -1, "offset": OFFSET_END},
    ],
)
def test_it_has_what_theirs_has(arguments: dict[str, Any]) -> None:
    ours, theirs = TopicPartition(**arguments), confluent_kafka.TopicPartition(**arguments)
    for name in ("topic", "partition", "offset", "metadata", "leader_epoch", "error"):
        assert getattr(ours, name) == getattr(theirs, name)
    assert repr(ours) == str(ours) == str(theirs)


def test_offsets_with_a_meaning() -> None:
    for name, value in (
        ("OFFSET_BEGINNING", OFFSET_BEGINNING),
        ("OFFSET_END", OFFSET_END),
        ("OFFSET_INVALID", OFFSET_INVALID),
        ("OFFSET_STORED", OFFSET_STORED),
    ):
        assert getattr(confluent_kafka, name) == value


def test_they_are_equal_and_sorted_by_topic_and_partition() -> None:
    one, two = TopicPartition("a", 1, 5), TopicPartition("a", 1, 6)
    assert one == two
    assert hash(one) == hash(two)
    assert one != ("a", 1)
    assert sorted([TopicPartition("b", 0), TopicPartition("a", 3), one]) == [
        one,
        TopicPartition("a", 3),
        TopicPartition("b", 0),
    ]
    assert TopicPartition("a", 0) < one <= two


def test_where_it_is_can_be_set_and_what_it_is_cannot() -> None:
    partition = TopicPartition("t")
    partition.partition, partition.offset = 3, 7
    assert (partition.partition, partition.offset) == (3, 7)
    for name in ("topic", "metadata", "leader_epoch", "error"):
        with pytest.raises(AttributeError):
            setattr(partition, name, None)


@pytest.mark.parametrize("arguments", [(1,), ("t", "1"), ("t", 1, "2"), ("t", 1, 2, b"m")])
def test_what_is_no_partition_raises(arguments: tuple[Any, ...]) -> None:
    with pytest.raises(TypeError):
        TopicPartition(*arguments)


def test_a_pickle_of_it() -> None:
    again = pickle.loads(pickle.dumps(TopicPartition("t", 3, 7, "mine", 2)))
    assert str(again) == str(TopicPartition("t", 3, 7, "mine", 2))
    assert again.metadata == "mine"
