"""The sparse indexes of a segment, by offset and by time."""

from __future__ import annotations

import struct
import tempfile
from bisect import bisect_right
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from kprod.broker.log.indexes import OffsetIndex, TimeIndex, TimestampOffset

BASE = 5_000
increasing = st.lists(st.tuples(st.integers(1, 1000), st.integers(1, 5000)), max_size=60).map(
    lambda steps: [
        (BASE + sum(s[0] for s in steps[: n + 1]), sum(s[1] for s in steps[: n + 1]))
        for n in range(len(steps))
    ]
)


@given(increasing, st.integers(BASE - 10, BASE + 62_000), st.integers(0, 310_000))
def test_the_last_entry_that_is_not_behind_is_found(
    entries: list[tuple[int, int]], offset: int, position: int
) -> None:
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory, "00000000000000005000.index")
        index = OffsetIndex(path, BASE)
        index.grow(8 * len(entries) + 7)
        for entry in entries:
            assert not index.full
            index.append(*entry)
        assert index.full
        index.trim()
        assert path.read_bytes() == b"".join(struct.pack(">ii", o - BASE, p) for o, p in entries)
        again = OffsetIndex(path, BASE)
        assert again.sane
        for each in (index, again):
            for wanted, place in ((offset, position), *entries):
                before = bisect_right([found for found, _ in entries], wanted)
                assert each.lookup(wanted) == (entries[before - 1][1] if before else 0)
                at_most = [found for found, at in entries if at <= place]
                assert each.offset_before(place) == (at_most[-1] if at_most else BASE)
                behind = [found for found, at in entries if at >= place]
                assert each.offset_behind(place) == (behind[0] if behind else None)
            each.close()


def test_only_larger_timestamps_are_news_and_the_last_slot_is_for_sealing(tmp_path: Path) -> None:
    index = TimeIndex(tmp_path / "00000000000000005000.timeindex", BASE)
    index.grow(4 * 12)
    for timestamp, offset in ((1_000, 4), (1_000, 9), (900, 12), (1_001, 13), (1_003, 20)):
        assert not index.full
        index.maybe_append(timestamp, BASE + offset)
    assert index.full
    assert index.lookup(999) == TimestampOffset(-1, BASE)
    assert index.lookup(1_000) == TimestampOffset(1_000, BASE + 4)
    assert index.lookup(1_002) == TimestampOffset(1_001, BASE + 13)
    for late in (9_000, 9_001):
        index.maybe_append(late, BASE + 99)
    assert index.last == TimestampOffset(9_000, BASE + 99)
    index.trim()
    entries = ((1_000, 4), (1_001, 13), (1_003, 20), (9_000, 99))
    assert index.path.read_bytes() == b"".join(struct.pack(">qi", *entry) for entry in entries)
    assert index.sane
    index.close()
