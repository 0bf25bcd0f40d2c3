"""A partitioner of the application is believed only what can be true."""

from __future__ import annotations

from collections.abc import Sequence
from enum import IntEnum
from typing import Any

import numpy
import pytest

from kprod.cluster.snapshot import TopicInfo
from kprod.errors import PartitionError
from kprod.intake.configured_partitioner import CallablePartitioner, CheckedPartitioner
from kprod.intake.partitioner import Partitioner
from kprod.types import BytesLike
from tests.support.steady_names import steady_repr
from tests.unit.intake.topics import topic


def test_a_callable_gets_key_all_and_available_partitions() -> None:
    calls: list[tuple[Any, Sequence[int], Sequence[int]]] = []

    def choose(key: Any, everyone: Sequence[int], available: Sequence[int]) -> int:
        calls.append((key, everyone, available))
        return available[-1]

    assert CallablePartitioner(choose).choose(topic(4, leaderless=[1, 3]), b"k") == 2
    assert calls == [(b"k", (0, 1, 2, 3), (0, 2))]


class Color(IntEnum):
    """A kind of int."""

    RED = 1


class Own:
    """A partitioner of the application that does what it is told."""

    def __init__(self, result: Any) -> None:
        self.result = result

    def choose(self, topic: TopicInfo, key: BytesLike | None) -> Any:
        if isinstance(self.result, BaseException):
            raise self.result
        return self.result

    def appended(self, topic: TopicInfo, partition: int, nbytes: int, batch_ready: bool) -> None:
        if isinstance(self.result, BaseException):
            raise self.result


def both(result: Any) -> list[Partitioner]:
    """The two ways to plug in a partitioner that answers ``result``."""
    own = Own(result)
    return [
        CallablePartitioner(lambda key, everyone, available: own.choose(topic(3), key)),
        CheckedPartitioner(own),
    ]


@pytest.mark.parametrize("chooser", both(Color.RED), ids=["callable", "object"])
def test_what_it_chose_is_a_plain_int(chooser: Partitioner) -> None:
    assert type(chooser.choose(topic(3), None)) is int


@pytest.mark.parametrize(
    "result",
    [-1, 3, 10**9, True, 1.0, None, "1", numpy.int64(1), numpy.bool_(True), float("nan")],
    ids=steady_repr,
)
@pytest.mark.parametrize("way", [0, 1], ids=["callable", "object"])
def test_what_the_topic_does_not_have(way: int, result: Any) -> None:
    with pytest.raises(PartitionError) as raised:
        both(result)[way].choose(topic(3), None)
    text = str(raised.value)
    assert text.startswith("partitioner ")
    assert text.endswith(
        f"expected an int from 0 to 2 for topic 't', got {result!r} ({type(result).__name__})"
        if result is not None
        else "expected an int from 0 to 2 for topic 't', got None"
    )


@pytest.mark.parametrize("way", [0, 1], ids=["callable", "object"])
def test_one_that_fails(way: int) -> None:
    cause = ZeroDivisionError("no")
    with pytest.raises(
        PartitionError, match="failed for topic 't': ZeroDivisionError: no"
    ) as raised:
        both(cause)[way].choose(topic(3), None)
    assert raised.value.__cause__ is cause


def test_one_that_fails_after_the_record_is_queued(caplog: pytest.LogCaptureFixture) -> None:
    CheckedPartitioner(Own(ValueError("late"))).appended(topic(3), 0, 10, False)
    assert "Own.appended failed" in caplog.text
