"""The independent reader of record batches, with captured and damaged bytes."""

from __future__ import annotations

import gzip

import cramjam
import lz4.frame
import pytest
import zstandard
from hypothesis import given
from hypothesis import strategies as st

from kprod.records.codecs import CorruptBatch
from kprod.records.legacy_message import read_sets
from kprod.records.record_batch import RecordBatch, read_batches
from tests.golden.record_batches import GOLDEN_BATCHES, GoldenBatch
from tests.support.raw_batch import raw_batch, raw_record, varint

CODECS = {
    1: gzip.compress,
    2: lambda data: bytes(cramjam.snappy.compress_raw(data)),
    3: lambda data: lz4.frame.compress(data, block_linked=False),
    4: zstandard.ZstdCompressor().compress,
}


def only_batch(data: bytes) -> RecordBatch:
    (batch,) = read_batches(data)
    return batch


@pytest.mark.parametrize("golden", GOLDEN_BATCHES, ids=lambda golden: golden.name)
def test_captured_batches_have_the_expected_records(golden: GoldenBatch) -> None:
    batch = only_batch(golden.data)
    assert batch.crc_ok
    assert batch.size == len(golden.data)
    found = [(r.timestamp, r.key, r.value, r.headers) for r in batch.records()]
    assert found == [(w[0], w[1], w[2], tuple(w[3])) for w in golden.records]
    offsets = [record.offset for record in batch.records()]
    assert offsets == list(range(batch.base_offset, batch.last_offset + 1))


def test_a_truncated_last_batch_is_left_out() -> None:
    first, second = raw_batch([b"a"]), raw_batch([b"b", b"c"], base_offset=1)
    for cut in range(1, len(second)):
        assert [b.base_offset for b in read_batches(first + second[:cut])] == [0]
    assert [b.base_offset for b in read_batches(first + second)] == [0, 1]


def test_append_time_is_the_time_of_every_record_if_there_is_one() -> None:
    batch = only_batch(raw_batch([b"a", b"b"], attributes=8, max_timestamp=77))
    assert [record.timestamp for record in batch.records()] == [77, 77]
    assert list(only_batch(raw_batch([])).records()) == []


def test_a_changed_byte_behind_the_crc_fails_it() -> None:
    data = bytearray(raw_batch([b"value"]))
    for at in range(17, len(data)):
        data[at] ^= 0x10
        assert not any(batch.crc_ok for batch in read_batches(bytes(data)))
        data[at] ^= 0x10


@pytest.mark.parametrize(
    "data",
    [
        raw_batch(batch_length=48),
        raw_batch(batch_length=-1),
        raw_batch(magic=0),
        raw_batch(magic=1),
        raw_batch(magic=3),
        raw_batch(record_count=-1),
    ],
)
def test_invalid_batch_headers_are_refused(data: bytes) -> None:
    with pytest.raises(CorruptBatch):
        list(read_batches(data))


@pytest.mark.parametrize("length", [14, 48])
def test_a_batch_shorter_than_its_header_is_refused(length: int) -> None:
    with pytest.raises(CorruptBatch, match=f"length of {length}"):
        list(read_sets(raw_batch(batch_length=length)))


@pytest.mark.parametrize(
    "payload",
    [
        b"",
        raw_record(0, b"v") + b"x",
        raw_record(0, b"v")[:-1],
        varint(1) + b"\0",
        varint(-5) + b"\0" * 8,
        varint(6) + b"\0" * 3 + varint(-2) + b"\1\0",
        varint(6) + b"\0" * 3 + varint(-1) + varint(50) + b"\0",
        varint(6) + b"\0" * 3 + b"\1\1" + varint(-1),
        varint(6) + b"\0" * 3 + b"\1\1" + varint(60),
        varint(8) + b"\0" * 3 + b"\1\1" + varint(1) + b"\1\1",
        b"\xff\xff\xff\xff\xff\x01" + b"\0" * 10,
        varint(13) + b"\0" + b"\xff" * 10 + b"\x01" + b"\0",
    ],
)
def test_malformed_records_are_refused(payload: bytes) -> None:
    with pytest.raises(CorruptBatch):
        list(only_batch(raw_batch(payload=payload)).records())


def test_a_header_name_that_is_not_utf_8_is_read_as_in_java() -> None:
    """librdkafka sends any bytes."""
    payload = varint(10) + b"\0" * 3 + b"\1\1" + varint(1) + b"\4h\xff\1"
    (record,) = only_batch(raw_batch(payload=payload)).records()
    assert record.headers == (("h\ufffd", None),)


@given(st.data())
def test_damage_only_ever_raises_corrupt_batch(data: st.DataObject) -> None:
    codec = data.draw(st.sampled_from([0, *CODECS]))
    payload = b"".join(raw_record(n, b"some value %d" % n) for n in range(8))
    whole = raw_batch([b""] * 8, payload=CODECS.get(codec, bytes)(payload), attributes=codec)
    damaged = bytearray(whole)
    for _ in range(data.draw(st.integers(1, 4))):
        damaged[data.draw(st.integers(0, len(whole) - 1))] = data.draw(st.integers(0, 255))
    del damaged[data.draw(st.integers(0, len(whole))) :]
    try:
        for batch in read_batches(damaged):
            list(batch.records(max_bytes=100_000))
    except CorruptBatch:
        pass
