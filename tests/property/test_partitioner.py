"""Whatever is sent: partitions exist, keys stick, batches are not cut short, loads have weights."""

from __future__ import annotations

import random

from hypothesis import given
from hypothesis import strategies as st

from kprod.cluster.snapshot import PartitionInfo, Partitions, TopicInfo
from kprod.intake.partitioner import DefaultPartitioner
from kprod.intake.queue_loads import LoadTable

leaders = st.lists(st.sampled_from([-1, 1, 2]), min_size=1, max_size=40)
appends = st.lists(st.tuples(st.integers(1, 700), st.booleans()), max_size=100)


def topic(leader_ids: list[int]) -> TopicInfo:
    infos = (PartitionInfo(n, leader_id) for n, leader_id in enumerate(leader_ids))
    return TopicInfo("t", None, Partitions.of(infos))


# So many that two draws in a row are hardly ever the same one.
MANY = topic([1] * 10_000)


def murmur2(data: bytes) -> int:
    """MurmurHash2 as Kafka's ``Utils.murmur2`` defines it, in plain Python."""
    mix, mask = 0x5BD1E995, 0xFFFFFFFF
    hashed = 0x9747B28C ^ len(data)
    whole = len(data) & ~3
    for start in range(0, whole, 4):
        word = int.from_bytes(data[start : start + 4], "little") * mix & mask
        word = (word ^ word >> 24) * mix & mask
        hashed = (hashed * mix & mask) ^ word
    if tail := data[whole:]:
        hashed = (hashed ^ int.from_bytes(tail, "little")) * mix & mask
    hashed = (hashed ^ hashed >> 13) * mix & mask
    return hashed ^ hashed >> 15


@given(leaders, st.binary(max_size=64))
def test_a_key_goes_where_its_hash_says(leader_ids: list[int], key: bytes) -> None:
    chosen = DefaultPartitioner(1000).choose(topic(leader_ids), key)
    assert chosen == (murmur2(key) & 0x7FFFFFFF) % len(leader_ids)


@given(st.lists(leaders, min_size=1, max_size=20), st.integers())
def test_a_partition_exists_and_has_a_leader_if_any_has(
    histories: list[list[int]], seed: int
) -> None:
    chooser = DefaultPartitioner(1000, random.Random(seed))
    for leader_ids in histories:
        now = topic(leader_ids)
        chosen = chooser.choose(now, None)
        assert chosen in (now.available or range(len(leader_ids)))
        chooser.appended(now, chosen, 400, True)


@given(appends, st.integers())
def test_a_switch_comes_no_earlier_than_a_full_batch(
    sizes: list[tuple[int, bool]], seed: int
) -> None:
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
    where = topic([1] * partitions)
    chooser = DefaultPartitioner(1, random.Random(seed))
    counts = [0] * partitions
    for _ in range(400 * partitions):
        chosen = chooser.choose(where, None)
        counts[chosen] += 1
        chooser.appended(where, chosen, 1, True)
    # 400 expected each, standard deviation at most 20: seven of them is beyond any seed.
    assert all(260 <= count <= 540 for count in counts)


partitions = st.lists(st.integers(0, 30), min_size=1, unique=True).map(sorted)
queues = st.dictionaries(st.integers(0, 32), st.integers(1, 9))


@given(partitions, queues)
def test_every_partition_has_as_many_numbers_as_its_weight(
    numbers: list[int], queued: dict[int, int]
) -> None:
    table = LoadTable(numbers, queued)
    sizes = {partition: queued.get(partition, 0) for partition in numbers}
    above = max(sizes.values()) + 1
    expected = [number for number in numbers for _ in range(above - sizes[number])]
    assert table.partitions(range(table.total)) == expected
    assert table.even == (len(set(sizes.values())) == 1)
