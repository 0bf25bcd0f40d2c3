"""Where records go: by keys as Kafka's clients do, by turns, by the application, or together."""

from __future__ import annotations

import random
import zlib
from collections import Counter
from collections.abc import Container, Sequence
from concurrent.futures import ThreadPoolExecutor
from enum import IntEnum
from typing import Any

import numpy
import pytest

from kprod.cluster.snapshot import PartitionInfo, Partitions, TopicInfo
from kprod.errors import PartitionError
from kprod.intake.configured_partitioner import (
    CallablePartitioner,
    CheckedPartitioner,
    partitioner_for,
)
from kprod.intake.partitioner import (
    AHEAD,
    FNV1A,
    DefaultPartitioner,
    Partitioner,
    RoundRobinPartitioner,
    magnitude,
)
from kprod.intake.queue_loads import QueueLoads
from kprod.types import BytesLike
from kprod_ext import fnv1a
from tests.support.steady_names import steady_repr


def topic(
    partitions: int, leaderless: Container[int] = (), name: str = "t", brokers: int = 1
) -> TopicInfo:
    """Partition n is led by broker n % ``brokers`` + 1, or by nobody."""
    infos = (
        PartitionInfo(number, leader_id=-1 if number in leaderless else number % brokers + 1)
        for number in range(partitions)
    )
    return TopicInfo(name, None, Partitions.of(infos))


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


def test_partitions_that_have_a_leader_take_turns_in_each_topic() -> None:
    chooser, one, other = RoundRobinPartitioner(), topic(3, name="one"), topic(3, name="other")
    assert [chooser.choose(t, None) for t in (one, other, one, other)] == [0, 0, 1, 1]
    for where, turns in (
        (topic(5, leaderless=[0, 3]), [1, 2, 4, 1]),
        (topic(2, leaderless=range(2)), [0, 1, 0, 1]),
    ):
        chooser = RoundRobinPartitioner()
        assert [chooser.choose(where, None) for _ in range(4)] == turns
    with pytest.raises(PartitionError, match="topic 't' has no partitions"):
        RoundRobinPartitioner().choose(topic(0), None)


def test_threads_take_turns() -> None:
    chooser, where = RoundRobinPartitioner(), topic(8)
    with ThreadPoolExecutor(4) as pool:
        chosen = Counter(pool.map(lambda _: chooser.choose(where, None), range(8000)))
    assert chosen == dict.fromkeys(range(8), 1000)


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
    assert f"expected an int from 0 to 2 for topic 't', got {result!r}" in text


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


# From the test suite of FNV's authors (FNV-1a, 32 bit).
FNV1A_VECTORS = [
    *((b"", 0x811C9DC5), (b"a", 0xE40C292C), (b"b", 0xE70C2DE5), (b"fo", 0x6222E842)),
    *((b"foo", 0xA9F37ED7), (b"foob", 0x3F5076EF), (b"foobar", 0xBF9CF968)),
]


@pytest.mark.parametrize(("data", "expected"), FNV1A_VECTORS)
@pytest.mark.parametrize("form", [bytes, bytearray, memoryview])
def test_fnv1a(form: type[bytes | bytearray | memoryview], data: bytes, expected: int) -> None:
    assert fnv1a(form(data)) == expected


def test_fnv1a_of_views_whose_items_are_not_numbers_from_0_to_255() -> None:
    view = memoryview(b"\xff\x80")
    assert fnv1a(view.cast("b")) == fnv1a(view)
    assert fnv1a(view.cast("c")) == fnv1a(view)


@pytest.mark.parametrize(("data", "hashed"), FNV1A_VECTORS)
@pytest.mark.parametrize("count", [1, 2, 3, 7, 12, 100, 2**31 - 1])
def test_fnv1a_with_saramas_sign_rule(data: bytes, hashed: int, count: int) -> None:
    signed = hashed - (1 << 32) if hashed >> 31 else hashed
    # In Go the remainder has the sign of the dividend; Sarama then drops the sign.
    remainder = signed - count * int(signed / count)
    assert FNV1A.partition(data, count) == abs(remainder)


def test_the_hash_without_a_magnitude() -> None:
    # -2**31 has no counterpart among 32 bit numbers; its remainder has.
    assert magnitude(0x80000000) % 7 == 2
