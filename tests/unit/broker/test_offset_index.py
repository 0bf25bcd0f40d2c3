"""The sparse index from offsets to positions."""

from __future__ import annotations

import struct
import tempfile
from bisect import bisect_right
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kprod.broker.log.indexes import OffsetIndex

BASE = 5_000


@contextmanager
def new_index(entries: list[tuple[int, int]], max_bytes: int = 8 * 1024) -> Iterator[OffsetIndex]:
    with tempfile.TemporaryDirectory() as directory:
        index = OffsetIndex(Path(directory) / "00000000000000005000.index", BASE)
        index.grow(max_bytes)
        for offset, position in entries:
            index.append(offset, position)
        yield index
        index.close()


increasing = st.lists(st.tuples(st.integers(1, 1000), st.integers(1, 5000)), max_size=60).map(
    lambda steps: [
        (BASE + sum(s[0] for s in steps[: n + 1]), sum(s[1] for s in steps[: n + 1]))
        for n in range(len(steps))
    ]
)


@given(increasing, st.integers(BASE - 10, BASE + 62_000))
def test_lookup_is_the_last_entry_not_after_the_target(
    entries: list[tuple[int, int]], target: int
) -> None:
    with new_index(entries) as index:
        before = bisect_right([offset for offset, _ in entries], target)
        assert index.lookup(target) == (entries[before - 1][1] if before else 0)


@given(increasing, st.integers(0, 310_000))
def test_the_offset_before_a_position(entries: list[tuple[int, int]], position: int) -> None:
    with new_index(entries) as index:
        before = [offset for offset, at in entries if at <= position]
        assert index.offset_before(position) == (before[-1] if before else BASE)


@given(increasing)
def test_trimming_and_opening_again_changes_nothing(entries: list[tuple[int, int]]) -> None:
    with new_index(entries) as index:
        index.trim()
        path = index.path
        assert path.read_bytes() == b"".join(struct.pack(">ii", o - BASE, p) for o, p in entries)
        again = OffsetIndex(path, BASE)
        assert again.sane
        assert [again.lookup(offset) for offset, _ in entries] == [at for _, at in entries]
        again.grow(4096)
        assert again.count == len(entries)
        assert not again.full
        again.close()


def test_offsets_only_grow() -> None:
    with new_index([(BASE + 3, 100)]) as index:
        for offset in (BASE + 3, BASE + 2):
            with pytest.raises(ValueError, match="does not come after"):
                index.append(offset, 200)


def test_room_is_whole_entries() -> None:
    with new_index([], max_bytes=23) as index:
        full = []
        for number in (1, 2):
            full.append(index.full)
            index.append(BASE + number, number)
        assert [*full, index.full] == [False, False, True]
        with pytest.raises(IndexError):
            index.append(BASE + 3, 3)


def test_files_that_cannot_be_an_index() -> None:
    with new_index([(BASE + 1, 1)]) as index:
        index.trim()
        for content in (b"\0" * 7, struct.pack(">ii", -5, 10)):
            index.path.write_bytes(content)
            damaged = OffsetIndex(index.path, BASE)
            assert not damaged.sane
            damaged.close()
