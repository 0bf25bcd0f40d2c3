"""A table made of the queues that are not empty says what a table of all partitions would say."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from kprod.intake.queue_loads import LoadTable

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
