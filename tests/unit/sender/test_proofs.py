"""What later batches prove about earlier ones that may be stored."""

from __future__ import annotations

import pytest

from tests.unit.sender.sequencing import LEADER, Line

LAST = 2**31 - 1


def test_a_batch_is_provable_while_later_ones_have_no_outcome() -> None:
    line = Line()
    line.prove()
    first, second = line.send(), line.send()
    assert first.partition.is_provable(first)
    assert not second.partition.is_provable(second)
    line.give_up(second)
    assert not first.partition.is_provable(first)


def test_a_batch_that_was_overtaken_is_not_provable() -> None:
    """A log that began with the second batch has a gap where the first would be."""
    line = Line()
    line.prove()
    first, second, _ = (line.send() for _ in range(3))
    line.refuse(first, maybe=True)
    line.acknowledge(second)
    assert not first.partition.is_provable(first)


@pytest.mark.parametrize(
    ("base_offset", "room"),
    [(106, True), (1000, True), (105, False), (0, False), (-1, False)],
)
def test_between_two_acknowledged_batches_there_is_room_for_the_others(
    base_offset: int, *, room: bool
) -> None:
    """A log that was cut short takes any batch for the first: then there is not."""
    line = Line()
    line.prove()  # at 100
    sent = [line.send(line.batch(records=n)) for n in (2, 3, 1)]  # behind it, 101, 103 and 106
    assert sent[2].partition.leaves_room(sent[2], base_offset) is room


def test_room_is_counted_across_the_largest_number() -> None:
    line = Line()
    line.send(first := line.batch())
    first.base_sequence = LAST
    first.partition.off_wire(first)
    first.partition.acknowledged(first, 10)
    later = line.batch()
    later.base_sequence = 4  # 0 to 3 were sent in between
    assert first.partition.leaves_room(later, 15)
    assert not first.partition.leaves_room(later, 14)


def test_nothing_is_known_of_room_behind_an_offset_that_was_not_told() -> None:
    line = Line()
    first, second = line.send(), line.batch()
    first.partition.off_wire(first)
    first.partition.acknowledged(first, -1)
    line.send(second)
    assert not second.partition.leaves_room(second, 1000)
    assert not first.partition.is_provable(first)


def test_a_batch_refused_by_another_topic_of_the_same_name_is_not_provable() -> None:
    line = Line()
    line.prove()
    first, second = line.send(), line.send()
    line.refuse(first, second, maybe=True)
    line.leader = LEADER._replace(topic_id=bytes(15) + b"\x01")
    line.send(first)
    assert not first.partition.is_provable(first)
