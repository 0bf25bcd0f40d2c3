"""What later batches prove about earlier ones that may be stored."""

from __future__ import annotations

from tests.unit.sender.sequencing import LEADER, Line

LAST = 2**31 - 1


def test_a_batch_that_was_overtaken_is_not_provable() -> None:
    """A log that began with the second batch has a gap where the first would be."""
    line = Line()
    line.prove()
    first, second, _ = (line.send() for _ in range(3))
    line.refuse(first, maybe=True)
    line.acknowledge(second)
    assert not first.partition.is_provable(first)


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


def test_a_batch_refused_by_another_topic_of_the_same_name_is_not_provable() -> None:
    line = Line()
    line.prove()
    first, second = line.send(), line.send()
    line.refuse(first, second, maybe=True)
    line.leader = LEADER._replace(topic_id=bytes(15) + b"\x01")
    line.send(first)
    assert not first.partition.is_provable(first)
