"""Partitioners: by key, round robin, of the application, and sticky."""

from __future__ import annotations

import random
import zlib
from collections import Counter
from collections.abc import Container, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from enum import IntEnum
from itertools import repeat
from typing import Any

import numpy
import pytest
from hypothesis import given
from hypothesis import strategies as st

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
from kprod.intake.queue_loads import LoadTable, QueueLoads
from kprod.types import BytesLike
from kprod_ext import StickyPartition, fnv1a
from tests.support.steady_names import steady_repr


def topic(
    partitions: int, leaderless: Container[int] = (), name: str = "t", brokers: int = 1
) -> TopicInfo:
    """Broker n % ``brokers`` + 1 leads partition n, unless that is in ``leaderless``."""
    infos = (
        PartitionInfo(number, leader_id=-1 if number in leaderless else number % brokers + 1)
        for number in range(partitions)
    )
    return TopicInfo(name, None, Partitions.of(infos))


BATCH = 1000


def partitioner(seed: int = 1) -> DefaultPartitioner:
    return DefaultPartitioner(BATCH, random.Random(seed))


def ahead_of(chooser: DefaultPartitioner) -> list[int]:
    """The sticky partition, and those drawn ahead."""
    sticky = chooser.sticky("t")
    return [] if sticky is None else [each.partition for each in sticky.chain()]


@pytest.mark.parametrize(("ready", "share"), [(True, BATCH), (False, 2 * BATCH)])
def test_a_share_is_a_full_batch_or_two_while_one_is_open(ready: bool, share: int) -> None:
    sticky = StickyPartition(3, BATCH)
    assert [sticky.add(size, ready) for size in (share - 1, 1, 0)] == [False, True, True]
    with pytest.raises(ValueError, match="no such partition or batch size"):
        StickyPartition(-1, 1)


def test_bytes_in_other_partitions_do_not_count() -> None:
    chooser, where = partitioner(), topic(1000)
    first = chooser.choose(where, None)
    chooser.appended(where, (first + 1) % 1000, 10 * BATCH, True)
    assert chooser.choose(where, None) == first


def test_one_partition_is_drawn_at_a_time_when_brokers_may_be_avoided() -> None:
    loads = QueueLoads(availability_timeout=1.0)
    chooser = DefaultPartitioner(BATCH, random.Random(1), loads=loads)
    chooser.choose(topic(1000), None)
    sticky = chooser.sticky("t")
    assert sticky is not None
    assert sticky.following is None


def test_partitions_drawn_ahead_are_replaced_when_they_lose_their_leader() -> None:
    """Senders go on from one to the next without a call."""
    chooser, where = partitioner(), topic(1000)
    chooser.choose(where, None)
    last = ahead_of(chooser)[-1]
    chooser.choose(topic(1000, leaderless=[last]), None)
    assert last not in ahead_of(chooser)
    assert len(ahead_of(chooser)) == AHEAD


MANY = topic(10_000)


@pytest.mark.parametrize(
    ("name", "chosen"), [("default", 4), ("crc32", zlib.crc32(b"kafka") % 12), ("fnv1a", 5)]
)
@pytest.mark.parametrize("form", [bytes, bytearray, memoryview])
def test_a_key_is_partitioned_by_the_named_hash(
    name: str, chosen: int, form: type[bytes | bytearray | memoryview]
) -> None:
    chooser = partitioner_for(name, BATCH)
    assert chooser.choose(topic(12), form(b"kafka")) == chosen
    assert chooser.choose(topic(12, leaderless=range(12)), form(b"kafka")) == chosen


def is_sticky(chooser: Partitioner, key: bytes | None) -> bool:
    """Whether records with this key follow records without one to each new partition."""
    seen = set()
    for _ in range(5):
        chosen = chooser.choose(MANY, None)
        if chooser.choose(MANY, key) != chosen:
            return False
        seen.add(chosen)
        chooser.appended(MANY, chosen, BATCH, True)
    return len(seen) > 1


@pytest.mark.parametrize(
    ("name", "sticky"), [("default", False), ("crc32", True), ("fnv1a", False)]
)
def test_an_empty_key_is_sticky_only_with_crc32(name: str, sticky: bool) -> None:
    assert is_sticky(partitioner_for(name, BATCH), b"") is sticky


def test_round_robin_uses_partitions_with_a_leader_per_topic() -> None:
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


def test_round_robin_is_even_across_threads() -> None:
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
    RED = 1


class Custom:
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
    """Both kinds of custom partitioners, returning ``result``."""
    own = Custom(result)
    return [
        CallablePartitioner(lambda key, everyone, available: own.choose(topic(3), key)),
        CheckedPartitioner(own),
    ]


@pytest.mark.parametrize("chooser", both(Color.RED), ids=["callable", "object"])
def test_a_chosen_partition_is_a_plain_int(chooser: Partitioner) -> None:
    assert type(chooser.choose(topic(3), None)) is int


@pytest.mark.parametrize(
    "result",
    [-1, 3, 10**9, True, 1.0, None, "1", numpy.int64(1), numpy.bool_(True), float("nan")],
    ids=steady_repr,
)
@pytest.mark.parametrize("way", [0, 1], ids=["callable", "object"])
def test_an_invalid_partition_from_a_partitioner_is_refused(way: int, result: Any) -> None:
    with pytest.raises(PartitionError) as raised:
        both(result)[way].choose(topic(3), None)
    text = str(raised.value)
    assert text.startswith(("partitioner Custom: ", "partitioner both.<locals>.<lambda>: "))
    assert f"expected an int from 0 to 2 for topic 't', got {result!r}" in text


@pytest.mark.parametrize("way", [0, 1], ids=["callable", "object"])
def test_an_exception_in_a_partitioner_is_a_partition_error(way: int) -> None:
    cause = ZeroDivisionError("no")
    with pytest.raises(
        PartitionError, match=r"(Custom|<lambda>) failed for topic 't': ZeroDivisionError: no"
    ) as raised:
        both(cause)[way].choose(topic(3), None)
    assert raised.value.__cause__ is cause


def test_an_exception_in_appended_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    CheckedPartitioner(Custom(ValueError("late"))).appended(topic(3), 0, 10, False)
    assert "Custom.appended failed" in caplog.text


# From the test suite of FNV's authors (FNV-1a, 32 bit).
FNV1A_VECTORS = [
    *((b"", 0x811C9DC5), (b"a", 0xE40C292C), (b"b", 0xE70C2DE5), (b"fo", 0x6222E842)),
    *((b"foo", 0xA9F37ED7), (b"foob", 0x3F5076EF), (b"foobar", 0xBF9CF968)),
]


def test_fnv1a_of_views_with_other_item_formats() -> None:
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


def test_the_magnitude_of_the_smallest_int32() -> None:
    # -2**31 has no positive counterpart of 32 bits; its remainder has.
    assert magnitude(0x80000000) % 7 == 2


class Queues:
    def __init__(self) -> None:
        self.changes = 0
        self.lengths: dict[str, dict[int, int]] = {}

    def set(self, topic: str, lengths: dict[int, int]) -> None:
        self.changes += 1
        self.lengths[topic] = lengths

    def depths(self, topic: str) -> Mapping[int, int]:
        return self.lengths.get(topic, {})


def loads_of(queued: dict[int, int], topic: str = "t") -> QueueLoads:
    loads, queues = QueueLoads(), Queues()
    queues.set(topic, queued)
    loads.watch(queues)
    return loads


def shares(loads: QueueLoads, where: TopicInfo, times: int = 3000) -> dict[int | None, float]:
    rng = random.Random(5)
    counts = Counter(loads.draw(where, rng, times) or repeat(None, times))
    return {partition: count / times for partition, count in counts.items()}


def about(shares: Mapping[int, float]) -> object:
    return pytest.approx(shares, abs=0.05)


def test_changed_queue_lengths_are_read_again() -> None:
    loads, queues, where = QueueLoads(), Queues(), topic(2)
    loads.watch(queues)
    queues.set("t", {0: 9})
    assert shares(loads, where) == about({0: 1 / 11, 1: 10 / 11})
    queues.set("t", {1: 9})
    assert shares(loads, where) == about({0: 10 / 11, 1: 1 / 11})
    queues.set("t", {})
    assert shares(loads, where) == {None: 1}


def test_partitions_without_a_leader_are_not_drawn() -> None:
    loads = loads_of({0: 1})
    assert shares(loads, topic(4, leaderless=[1])) == about({0: 1 / 5, 2: 2 / 5, 3: 2 / 5})
    assert shares(loads, topic(4, leaderless=[0])) == {None: 1}
    assert shares(loads, topic(4, leaderless=range(4))) == {None: 1}


def test_partitions_added_or_removed_since_the_lengths_were_read() -> None:
    loads = loads_of({0: 1, 1: 1})
    assert shares(loads, topic(2)) == {None: 1}
    assert shares(loads, topic(3)) == about({0: 1 / 4, 1: 1 / 4, 2: 2 / 4})
    assert shares(loads, topic(1)) == {None: 1}


TWO = topic(4, brokers=2)  # 0 and 2 on broker 1, 1 and 3 on broker 2


def report_waiting(loads: QueueLoads, waiting: Iterable[int], *times: float) -> None:
    queues = Queues()
    queues.set("t", {1: 1})
    loads.watch(queues)
    for now in times:
        loads.waiting(list(waiting), now)


def test_a_broker_that_is_unavailable_for_too_long_is_avoided() -> None:
    loads = QueueLoads(availability_timeout=2)
    report_waiting(loads, [2], 10, 12)
    assert shares(loads, TWO).keys() == {0, 1, 2, 3}
    report_waiting(loads, [2], 12.1)
    assert shares(loads, TWO) == about({0: 1 / 2, 2: 1 / 2})


@pytest.mark.parametrize(
    "reports",
    [
        [([2], 10), ([2], 13), ([], 13.5)],  # it is available again
        [([2], 10), ([2], 13), ([], 13.5), ([2], 14)],
        [([2], 10), ([], 500), ([2], 1000)],  # it was idle
    ],
)
def test_an_available_or_idle_broker_is_not_avoided(reports: list[tuple[list[int], float]]) -> None:
    loads = QueueLoads(availability_timeout=2)
    for waiting, now in reports:
        report_waiting(loads, waiting, now)
    assert shares(loads, TWO).keys() == {0, 1, 2, 3}


def test_draws_are_uniform_when_all_brokers_are_unavailable() -> None:
    loads = QueueLoads(availability_timeout=2)
    report_waiting(loads, [1, 2], 10, 13)
    assert shares(loads, TWO) == {None: 1}


def test_a_changed_load_does_not_switch_partitions_before_the_batch_is_full() -> None:
    loads, queues, where = QueueLoads(), Queues(), topic(50)
    loads.watch(queues)
    chooser = DefaultPartitioner(100, random.Random(3), loads=loads)
    first = chooser.choose(where, None)
    queues.set("t", {first: 1000})
    chooser.appended(where, first, 99, True)
    assert chooser.choose(where, None) == first


led = st.lists(st.booleans(), min_size=1, max_size=40)
topics = led.map(lambda each: topic(len(each), [n for n, one in enumerate(each) if not one]))
appends = st.lists(st.tuples(st.integers(1, 700), st.booleans()), max_size=100)


@given(st.lists(topics, min_size=1, max_size=20), st.integers())
def test_a_partition_exists_and_has_a_leader_if_any(history: list[TopicInfo], seed: int) -> None:
    chooser = DefaultPartitioner(1000, random.Random(seed))
    for now in history:
        chosen = chooser.choose(now, None)
        assert chosen in (now.available or range(len(now)))
        chooser.appended(now, chosen, 400, True)


@given(appends, st.integers())
def test_a_switch_comes_not_before_a_full_batch(sizes: list[tuple[int, bool]], seed: int) -> None:
    where = MANY
    chooser = DefaultPartitioner(1000, random.Random(seed))
    produced, current = 0, chooser.choose(where, None)
    for size, ready in sizes:
        chooser.appended(where, current, size, ready)
        produced += size
        enough = produced >= (1000 if ready else 2000)
        chosen = chooser.choose(where, None)
        assert enough or chosen == current
        if enough:
            produced, current = 0, chosen
        assert produced < 2000


@given(st.integers(2, 8), st.integers(0, 2**32))
def test_draws_are_uniform(partitions: int, seed: int) -> None:
    where = topic(partitions)
    chooser = DefaultPartitioner(1, random.Random(seed))
    counts = [0] * partitions
    for _ in range(400 * partitions):
        chosen = chooser.choose(where, None)
        counts[chosen] += 1
        chooser.appended(where, chosen, 1, True)
    # 400 expected each, standard deviation at most 20: no seed is off by seven of these.
    assert all(260 <= count <= 540 for count in counts)


numbers_of_partitions = st.lists(st.integers(0, 30), min_size=1, unique=True).map(sorted)
queues = st.dictionaries(st.integers(0, 32), st.integers(1, 9))


@given(numbers_of_partitions, queues)
def test_numbers_of_partitions_follow_weights(numbers: list[int], queued: dict[int, int]) -> None:
    table = LoadTable(numbers, queued)
    sizes = {partition: queued.get(partition, 0) for partition in numbers}
    above = max(sizes.values()) + 1
    expected = [number for number in numbers for _ in range(above - sizes[number])]
    assert table.partitions(range(table.total)) == expected
    assert table.even == (len(set(sizes.values())) == 1)
