"""What later batches prove about earlier ones that may be stored."""

from __future__ import annotations

import pytest

from tests.unit.sender.sequencing import LEADER, Line

LAST = 2**31 - 1


def test_a_batch_is_provable_while_later_ones_have_no_outcome() -> None:
    line = Line()
    line.prove()
    first, second = line.send(), line.send()
    assert line.sequences.is_provable(first)
    assert not line.sequences.is_provable(second)
    line.give_up(second)
    assert not line.sequences.is_provable(first)


def test_a_batch_that_was_overtaken_is_not_provable() -> None:
    """A log that began with the second batch has a gap where the first would be."""
    line = Line()
    line.prove()
    first, second, _ = (line.send() for _ in range(3))
    line.refuse(first, maybe=True)
    line.acknowledge(second)
    assert not line.sequences.is_provable(first)


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
    assert line.sequences.leaves_room(sent[2], base_offset) is room


def test_room_is_counted_across_the_largest_number() -> None:
    line = Line()
    line.send(first := line.batch())
    first.base_sequence = LAST
    line.sequences.off_wire(first)
    line.sequences.acknowledged(first, 10)
    later = line.batch()
    later.base_sequence = 4  # 0 to 3 were sent in between
    assert line.sequences.leaves_room(later, 15)
    assert not line.sequences.leaves_room(later, 14)


def test_nothing_is_known_of_room_behind_an_offset_that_was_not_told() -> None:
    line = Line()
    first, second = line.send(), line.batch()
    line.sequences.off_wire(first)
    line.sequences.acknowledged(first, -1)
    assert not line.sequences.leaves_room(line.send(second), 1000)
    assert not line.sequences.is_provable(first)


def test_a_batch_refused_by_another_topic_of_the_same_name_is_not_provable() -> None:
    line = Line()
    line.prove()
    first, second = line.send(), line.send()
    line.refuse(first, second, maybe=True)
    line.leader = LEADER._replace(topic_id=bytes(15) + b"\x01")
    line.send(first)
    assert not line.sequences.is_provable(first)
