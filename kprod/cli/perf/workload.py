"""What a measurement sends: how many records, of what, how fast."""

from __future__ import annotations

import random
import string
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

DISTINCT = 1000
"""Different values that are sent in turn, so that a codec has something to do."""

DISTINCT_BYTES = 16_000_000
"""Bytes of all of them at most."""

SEED = 2013
PACES_A_SECOND = 500


class Chunk(NamedTuple):
    """Records that are sent without looking at the clock in between; ``keys`` None: without.

    ``start`` is how many records of the workload come before.
    """

    start: int
    values: Sequence[bytes]
    keys: Sequence[bytes] | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Workload:
    """Records for one topic. Immutable.

    ``values`` are sent in turn, again and again. ``keys`` is the number of different keys, 0 for
    records without; key ``n`` is ``b"key-n"``. ``rate`` is records a second, None for as many as
    will go.
    """

    topic: str
    records: int
    values: Sequence[bytes]
    keys: int = 0
    rate: float | None = None

    def chunks(self, most: int) -> Iterator[Chunk]:
        """All records in turn, at most ``most`` at a time, and fewer when the rate is slow."""
        size = most
        if self.rate is not None:
            size = max(1, min(most, int(self.rate / PACES_A_SECOND)))
        values = _ring(self.values, size)
        keys = _ring(self.distinct_keys(), size)
        for start in range(0, self.records, size):
            count = min(size, self.records - start)
            cut = _cut(keys, start, count) if keys else None
            yield Chunk(start, _cut(values, start, count), cut)

    def distinct_keys(self) -> list[bytes]:
        """Every key, in the order in which they are used."""
        return [b"key-%d" % number for number in range(self.keys)]

    def payload_bytes(self, records: int) -> int:
        """Bytes of the values of the first ``records`` records."""
        rounds, rest = divmod(records, len(self.values))
        sizes = [len(value) for value in self.values]
        return rounds * sum(sizes) + sum(sizes[:rest])


def letters(size: int) -> list[bytes]:
    """Values of ``size`` random capital letters, the same in every run."""
    dice = random.Random(SEED)
    alphabet = string.ascii_uppercase
    count = max(1, min(DISTINCT, DISTINCT_BYTES // max(size, 1)))
    return ["".join(dice.choices(alphabet, k=size)).encode() for _ in range(count)]


def lines_of(file: Path) -> list[bytes]:
    """Each line of the file as a value. Raises ValueError when there is none."""
    lines = file.read_bytes().splitlines()
    if not lines:
        raise ValueError(f"{file} has no lines")
    return lines


def _ring(items: Sequence[bytes], size: int) -> Sequence[bytes]:
    """The items, repeated until there are at least ``size``."""
    return items if len(items) >= size or not items else list(items) * -(-size // len(items))


def _cut(ring: Sequence[bytes], start: int, count: int) -> Sequence[bytes]:
    """``count`` items from the one that is ``start`` places on, going round; at most one round."""
    at = start % len(ring)
    piece = ring[at : at + count]
    return piece if len(piece) == count else [*piece, *ring[: count - len(piece)]]
