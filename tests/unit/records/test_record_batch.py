"""The independent reader of record batches, against captured bytes and against damage."""

from __future__ import annotations

import gzip

import cramjam
import lz4.frame
import pytest
import zstandard
from hypothesis import given
from hypothesis import strategies as st

from kprod.records.codecs import CorruptBatch
from kprod.records.record_batch import RecordBatch, StoredRecord, read_batches
from tests.golden.record_batches import GOLDEN_BATCHES, GoldenBatch
from tests.support.raw_batch import raw_batch, raw_record, varint

SARAMA_RECORD = StoredRecord(
    0, 0x0158_8DCD_5938 + 5, b"\1\2\3\4", b"\5\6\7", (("\x08\x09\x0a", b"\x0b\x0c"),)
)
SARAMA_BATCHES = {
    "none": "0000000000000000000000460000000002547961fd000000000000000001588dcd59380000000000000000"
    "00000000000000000000000000000000000128000a00080102030406050607020608090a040b0c",
    "gzip": "00000000000000000000005f0000000002e74acea5000100000000000001588dcd59380000000000000000"
    "0000000000000000000000000000000000011f8b080000096e8800ff001500eaff28000a000801020304060506"
    "07020608090a040b0c0300adc9586715000000",
    "snappy": "00000000000000000000005c00000000028564b224000200000000000001588dcd593800000000000000"
    "0000000000000000000000000000000000000182534e4150505900000000010000000100000017155028000a00"
    "080102030406050607020608090a040b0c",
    "lz4": "00000000000000000000005900000000029d1291f8000300000000000001588dcd593800000000000000000"
    "0000000000000000000000000000000000104224d186440a71500008028000a00080102030406050607020608090"
    "a040b0c000000000c3bef92",
    "gap at the end": "0000000000000000000000460000000002ca33bc05000000000001000001588dcd593800000"
    "0000000000000000000000000000000000000000000000128000a00080102030406050607020608090a040b0c",
}
COMMIT_MARKER = bytes.fromhex(
    "00000000000000000000004200000000027ccf046d0030000000000000018bcfe568640000018bcfe5686400000000"
    "00000fa00003ffffffff000000012000000008000000010c00000000000700"
)
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
def test_captured_batches_hold_the_records_they_are_known_for(golden: GoldenBatch) -> None:
    batch = only_batch(golden.data)
    assert batch.crc_ok
    assert batch.size == len(golden.data)
    found = [(r.timestamp, r.key, r.value, r.headers) for r in batch.records()]
    assert found == [(w[0], w[1], w[2], tuple(w[3])) for w in golden.records]
    offsets = [record.offset for record in batch.records()]
    assert offsets == list(range(batch.base_offset, batch.last_offset + 1))


@pytest.mark.parametrize("name", SARAMA_BATCHES)
def test_batches_of_a_go_client_in_every_codec(name: str) -> None:
    batch = only_batch(bytes.fromhex(SARAMA_BATCHES[name]))
    assert batch.crc_ok
    assert list(batch.records()) == [SARAMA_RECORD]


def test_a_marker_of_a_coordinator_is_told_apart() -> None:
    marker = only_batch(COMMIT_MARKER)
    assert marker.crc_ok
    assert marker.is_control
    assert marker.is_transactional
    assert (marker.producer_id, marker.producer_epoch, marker.base_sequence) == (4000, 3, -1)


def test_append_time_is_the_time_of_every_record() -> None:
    batch = only_batch(raw_batch([b"a", b"b"], attributes=8, max_timestamp=77))
    assert [record.timestamp for record in batch.records()] == [77, 77]


def test_batches_follow_each_other_and_a_cut_off_one_is_left_out() -> None:
    first, second = raw_batch([b"a"]), raw_batch([b"b", b"c"], base_offset=1)
    for cut in range(1, len(second)):
        assert [b.base_offset for b in read_batches(first + second[:cut])] == [0]
    assert [b.base_offset for b in read_batches(first + second)] == [0, 1]


def test_an_empty_batch_is_a_batch() -> None:
    assert list(only_batch(raw_batch([])).records()) == []


def test_a_changed_byte_behind_the_crc_is_noticed() -> None:
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
def test_headers_that_no_batch_has(data: bytes) -> None:
    with pytest.raises(CorruptBatch):
        list(read_batches(data))


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
        varint(10) + b"\0" * 3 + b"\1\1" + varint(1) + b"\4\xff\xfe\1",
        b"\xff\xff\xff\xff\xff\x01" + b"\0" * 10,
        varint(13) + b"\0" + b"\xff" * 10 + b"\x01" + b"\0",
    ],
)
def test_records_that_are_not_well_formed(payload: bytes) -> None:
    with pytest.raises(CorruptBatch):
        list(only_batch(raw_batch(payload=payload)).records())


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


@given(st.binary(max_size=300))
def test_noise_only_ever_raises_corrupt_batch(noise: bytes) -> None:
    try:
        list(read_batches(noise))
        list(only_batch(raw_batch(payload=noise)).records())
    except CorruptBatch:
        pass
