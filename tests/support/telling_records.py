"""Records that a careless writer, broker or reader would get wrong."""

from __future__ import annotations

from typing import NamedTuple

_SOME_TIME = 1_700_000_000_000


class TellingRecord(NamedTuple):
    """What is sent, with its place and time explicit."""

    partition: int
    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...] = ()


def telling_records(partitions: int) -> list[TellingRecord]:
    """Nulls, empties, headers, times that go back, large values, over all partitions."""
    contents: list[tuple[bytes | None, bytes | None, tuple[tuple[str, bytes | None], ...]]] = [
        (b"key", b"value", ()),
        (None, b"no key", ()),
        (b"tombstone", None, ()),
        (None, None, ()),
        (b"", b"", ()),
        (b"headers", b"v", (("a", b"1"), ("a", b"2"), ("empty", b""), ("ümlaut", b"\xff\x00"))),
        (b"null header", b"v", (("none", None),)),
        (b"\x00\xff" * 50, bytes(range(256)) * 40, ()),
        (b"one megabyte", b"m" * 1_000_000, ()),
        *((b"k%d" % n, b"v%d" % n * n, ()) for n in range(40)),
    ]
    return [
        TellingRecord(number % partitions, _SOME_TIME + (number * 7919) % 1000, *content)
        for number, content in enumerate(contents * 2)
    ]


def by_partition(records: list[TellingRecord], partitions: int) -> list[list[TellingRecord]]:
    """The records of each partition in the order they were sent."""
    return [[r for r in records if r.partition == number] for number in range(partitions)]
