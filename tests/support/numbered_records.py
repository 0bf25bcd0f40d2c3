"""Numbered records, and checks that the log has them in the order of sending."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from kprod import RecordMetadata
from tests.support.committed_records import Stored


def numbered(number: int, size: int = 1) -> bytes:
    """The value of record ``number``, of at least ``size`` bytes."""
    return b"%0*d" % (size, number)


def check_order(found: Iterable[Stored], count: int, partitions: int) -> None:
    """Records 0 to ``count`` - 1 are in the log once each, in the order of sending.

    Record n was sent to partition n % ``partitions``; ``found`` has each partition's by offset.
    """
    wanted = list(range(partitions))
    for record in found:
        number, partition = int(record.value or b"-1"), record.partition
        assert number == wanted[partition], f"{record} instead of {wanted[partition]}"
        wanted[partition] += partitions
    for partition, number in enumerate(wanted):
        assert number >= count, f"partition {partition} ends before record {number}"
    assert sum(number - place for place, number in enumerate(wanted)) == count * partitions


def check_numbered(
    found: Sequence[Stored], places: Sequence[RecordMetadata], partitions: int
) -> None:
    """Each record is in the log once, in order, and at the offset of its future.

    ``places`` are those of records 0, 1, 2...; record n was sent to partition n % ``partitions``.
    """
    check_order(found, len(places), partitions)
    numbers = {(record.partition, record.offset): int(record.value or b"-1") for record in found}
    for number, place in enumerate(places):
        if place.offset >= 0:  # unknown for a duplicate
            assert numbers[place.partition, place.offset] == number
