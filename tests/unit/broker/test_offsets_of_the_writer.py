"""Batches whose records have offsets of the caller's, read by the embedded broker."""

from __future__ import annotations

import struct

import pytest

from kprod.broker.records.batch_writer import read_marker
from kprod.records.record_batch import read_batches
from tests.support.batch_writing import HEADER_BYTES, new_builder


def test_records_are_at_the_offsets_that_are_given() -> None:
    builder = new_builder()
    for offset, timestamp in ((7, 50), (9, -1), (300, 60)):
        assert builder.append_with_offset(offset, timestamp, b"k", b"v", [("h", None)]) > 0
    builder.append(70, None, None)
    builder.close()
    (batch,) = read_batches(bytes(builder.build()))
    assert (batch.base_offset, batch.last_offset, batch.record_count) == (7, 301, 4)
    assert batch.crc_ok
    assert [(r.offset, r.timestamp) for r in batch.records()] == [
        (7, 50),
        (9, -1),
        (300, 60),
        (301, 70),
    ]


def test_a_batch_of_records_without_a_time_has_none() -> None:
    builder = new_builder()
    builder.append_with_offset(0, -1, None, b"v")
    assert (builder.base_timestamp, builder.max_timestamp) == (-1, -1)


@pytest.mark.parametrize(
    ("offset", "timestamp", "complaint"),
    [
        (9, 0, "offset 9 does not follow 9"),
        (8, 0, "offset 8 does not follow 9"),
        (0, 0, "offset 0 does not follow 9"),
        (-1, 0, "offset must not be negative"),
        (8 + 2**31, 0, "too far from the first one, 8"),
        (10, -2, "timestamp_ms must not be negative, got -2"),
    ],
)
def test_what_is_out_of_order_changes_nothing(offset: int, timestamp: int, complaint: str) -> None:
    builder = new_builder()
    builder.append_with_offset(8, 0, None, b"first")
    builder.append_with_offset(9, 0, None, b"second")
    with pytest.raises(ValueError, match=complaint):
        builder.append_with_offset(offset, timestamp, None, b"v")
    builder.append_with_offset(10, 0, None, b"third")
    builder.close()
    (batch,) = read_batches(bytes(builder.build()))
    assert [record.offset for record in batch.records()] == [8, 9, 10]


def test_a_first_record_that_is_refused_sets_no_base_offset() -> None:
    builder = new_builder()
    with pytest.raises(ValueError, match="negative"):
        builder.append_with_offset(8, -2, None, b"v")
    builder.append_with_offset(3, 0, None, b"v")
    builder.close()
    (batch,) = read_batches(bytes(builder.build()))
    assert batch.base_offset == 3


def test_control_records_are_in_control_batches_only() -> None:
    usual, control = new_builder(), new_builder(control=True)
    with pytest.raises(ValueError, match="control batches"):
        usual.append_with_offset(0, 0, b"k", b"v", control=True)
    for append in (control.append, control.try_append):
        with pytest.raises(ValueError, match="control batches"):
            append(0, b"k", b"v")
    with pytest.raises(ValueError, match="control batches"):
        control.append_with_offset(0, 0, b"k", b"v")
    assert usual.record_count == control.record_count == 0
    key, value = struct.pack(">hh", 0, 1), struct.pack(">hi", 0, 3)  # a commit of coordinator 3
    control.append_with_offset(41, 5, key, value, control=True)
    control.set_producer_state(9, 2, 0, transactional=True)
    control.close()
    (batch,) = read_batches(bytes(control.build()))
    assert batch.is_control
    assert batch.is_transactional
    marker = read_marker(batch)
    assert marker is not None
    assert (marker.producer_id, marker.committed) == (9, True)


def test_an_aborted_batch_takes_no_record_and_is_none() -> None:
    builder = new_builder()
    builder.append(1, None, b"v")
    builder.abort()
    builder.abort()
    with pytest.raises(ValueError, match="takes no more records"):
        builder.append(1, None, b"v")
    with pytest.raises(ValueError, match="takes no more records"):
        builder.append_with_offset(5, 1, None, b"v")
    assert builder.try_append(1, None, b"v") == 0
    with pytest.raises(RuntimeError, match="aborted"):
        builder.close()
    with pytest.raises(RuntimeError):
        builder.build()


def test_a_closed_batch_cannot_be_aborted() -> None:
    builder = new_builder()
    builder.append(1, None, b"v")
    builder.close()
    with pytest.raises(RuntimeError, match="closed"):
        builder.abort()
    assert len(builder.build()) > HEADER_BYTES
