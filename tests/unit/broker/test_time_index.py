"""The sparse index from timestamps to offsets."""

from __future__ import annotations

import struct
from pathlib import Path

import pytest

from kprod.broker.log.indexes import TimeIndex, TimestampOffset

BASE = 700


@pytest.fixture
def index(tmp_path: Path) -> TimeIndex:
    index = TimeIndex(tmp_path / "00000000000000000700.timeindex", BASE)
    index.grow(5 * 12)
    return index


def test_only_larger_timestamps_are_news(index: TimeIndex) -> None:
    index.maybe_append(1_000, BASE + 4)
    index.maybe_append(1_000, BASE + 9)
    index.maybe_append(900, BASE + 12)
    index.maybe_append(1_001, BASE + 13)
    assert index.count == 2
    assert index.last == TimestampOffset(1_001, BASE + 13)
    index.close()


def test_lookup_is_the_last_entry_not_later(index: TimeIndex) -> None:
    for timestamp in (10, 20, 30):
        index.maybe_append(timestamp, BASE + timestamp)
    assert index.lookup(9) == TimestampOffset(-1, BASE)
    assert index.lookup(10) == TimestampOffset(10, BASE + 10)
    assert index.lookup(29) == TimestampOffset(20, BASE + 20)
    assert index.lookup(10**15) == TimestampOffset(30, BASE + 30)
    index.close()


def test_the_last_slot_is_for_sealing(index: TimeIndex) -> None:
    for timestamp in range(4):
        assert not index.full
        index.maybe_append(timestamp, BASE + timestamp)
    assert index.full
    index.maybe_append(99, BASE + 99)
    index.maybe_append(100, BASE + 100)
    assert index.last == TimestampOffset(99, BASE + 99)
    index.close()


def test_the_bytes_are_kafkas(index: TimeIndex) -> None:
    index.maybe_append(1_700_000_000_000, BASE + 5)
    index.trim()
    assert index.path.read_bytes() == struct.pack(">qi", 1_700_000_000_000, 5)
    assert index.sane
    index.close()
