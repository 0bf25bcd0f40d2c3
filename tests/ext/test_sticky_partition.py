"""When a sticky partition has had its share."""

from __future__ import annotations

import pytest

from kprod_ext import StickyPartition


def test_a_share_is_a_batch_when_the_batch_is_full() -> None:
    sticky = StickyPartition(3, 100)
    assert sticky.partition == 3
    assert not sticky.add(99, True)
    assert sticky.add(1, True)
    assert sticky.spent


def test_a_share_is_two_batches_while_one_is_open() -> None:
    sticky = StickyPartition(0, 100)
    assert not sticky.add(199, False)
    assert not sticky.spent
    assert sticky.add(1, False)


def test_once_spent_it_stays_so() -> None:
    sticky = StickyPartition(0, 1)
    assert sticky.add(1, True)
    assert sticky.add(0, False)


@pytest.mark.parametrize(("partition", "batch_size"), [(-1, 1), (0, 0), (0, -5)])
def test_what_cannot_be_is_refused(partition: int, batch_size: int) -> None:
    with pytest.raises(ValueError, match="no such partition or batch size"):
        StickyPartition(partition, batch_size)


def test_the_chain_is_this_one_and_those_that_follow() -> None:
    last = StickyPartition(3, 1)
    second = StickyPartition(1, 1, last)
    first = StickyPartition(3, 1, second)
    assert first.chain() == [first, second, last]
    assert last.chain() == [last]
