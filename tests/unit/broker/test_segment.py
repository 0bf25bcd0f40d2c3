"""One segment: what is written, found, indexed and recovered."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from pathlib import Path

import pytest

from kprod.broker.log.indexes import TimestampOffset
from kprod.broker.log.log_config import LogConfig
from kprod.broker.log.segment import LogSegment
from kprod.broker.records.file_slice import in_memory
from kprod.records.record_batch import BatchHeader, read_batches
from tests.support.raw_batch import raw_batch, raw_record

BASE = 1_000
PER_BATCH = 3


def thousand_bytes(number: int) -> bytes:
    """Batch ``number`` of three records in exactly 1,000 bytes, a second after the one before."""
    filler = b"x" * 300
    payload = raw_record(0, filler) + raw_record(1, filler)
    payload += raw_record(2, b"y" * (1000 - 61 - len(payload) - 9))
    return raw_batch(
        [b""] * PER_BATCH,
        payload=payload,
        base_offset=BASE + PER_BATCH * number,
        base_timestamp=number * 1000,
        max_timestamp=number * 1000,
    )


def fill(segment: LogSegment, batches: range) -> None:
    for number in batches:
        data = thousand_bytes(number)
        assert len(data) == 1000
        segment.append(BatchHeader.parse(data), [data])


@pytest.fixture
def segment(tmp_path: Path) -> Iterator[LogSegment]:
    segment = LogSegment(tmp_path, BASE, LogConfig())
    segment.open_for_append()
    yield segment
    segment.close()


def offsets_in(data: bytes) -> list[int]:
    return [batch.base_offset for batch in read_batches(data)]


def test_an_entry_comes_with_the_batch_that_finds_4096_bytes_behind_it(
    segment: LogSegment,
) -> None:
    fill(segment, range(5))
    assert segment.offset_index.count == 0
    fill(segment, range(5, 6))
    assert segment.offset_index[0] == (17, 5000)
    assert segment.time_index[0] == (5000, 17)
    fill(segment, range(6, 11))
    assert segment.offset_index.count == 2
    assert segment.offset_index[1] == (32, 10_000)


def test_a_time_is_found_where_it_is_reached_first(segment: LogSegment) -> None:
    fill(segment, range(40))
    for number in (0, 1, 17, 39):
        found = segment.find_timestamp(number * 1000 - 500, 0, segment.size)
        assert found == TimestampOffset(number * 1000, BASE + PER_BATCH * number)
        assert segment.find_timestamp(number * 1000, 0, segment.size) == found
    assert segment.find_timestamp(39_001, 0, segment.size) is None
    assert segment.find_timestamp(0, BASE + 5, segment.size) == TimestampOffset(1000, BASE + 5)
    assert segment.find_timestamp(5000, 0, 5000) is None


@pytest.mark.parametrize("entry", [(17, 5001), (17, 500_000), (17, -5), (99, 5000), (2, 5000)])
def test_a_damaged_index_misleads_nobody(segment: LogSegment, entry: tuple[int, int]) -> None:
    fill(segment, range(8))
    segment.seal()
    segment.offset_index.path.write_bytes(struct.pack(">ii", *entry))
    assert segment.intact_end() is None
    for offset in range(BASE, BASE + 24):
        data = in_memory([segment.locate(offset, 1000, segment.size, whole_first=False)])
        assert offsets_in(data) == [offset - (offset - BASE) % PER_BATCH]


@pytest.mark.parametrize("at", [8, 16, 17, 21, 30, 60, 500, 999])
def test_recovery_ends_at_the_first_batch_that_is_not_valid(segment: LogSegment, at: int) -> None:
    fill(segment, range(8))
    path = segment.records.path
    content = bytearray(path.read_bytes())
    content[3000 + at] ^= 0x40
    path.write_bytes(content)
    assert segment.recover() == 5000
    assert segment.intact_end() == BASE + 9


def test_zeros_at_the_end_are_not_batches(segment: LogSegment) -> None:
    fill(segment, range(3))
    with segment.records.path.open("ab") as file:
        file.write(bytes(4096))
    again = LogSegment(segment.records.path.parent, BASE, LogConfig())
    assert again.intact_end() is None
    assert again.recover() == 4096
    assert again.intact_end() == BASE + 9
    again.close()


def test_a_closed_segment_has_nothing_to_read(segment: LogSegment) -> None:
    fill(segment, range(8))
    segment.close()
    assert in_memory([segment.locate(BASE + 20, 1000, 8000, whole_first=True)]) == b""
