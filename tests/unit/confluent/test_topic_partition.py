"""TopicPartition as confluent_kafka has it."""

from __future__ import annotations

import pickle
from typing import Any

import confluent_kafka
import pytest

from kprod.confluent import (
    OFFSET_END,
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


def test_a_pickle_of_it() -> None:
    again = pickle.loads(pickle.dumps(TopicPartition("t", 3, 7, "mine", 2)))
    assert str(again) == str(TopicPartition("t", 3, 7, "mine", 2))
    assert again.metadata == "mine"
