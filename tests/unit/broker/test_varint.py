"""Variable-length integers at their edges."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kprod.records.codecs import CorruptBatch
from kprod.records.record_batch import LONG_BITS, read_varint
from tests.support.raw_batch import varint

INT_EDGES = {
    0: "00",
    -1: "01",
    1: "02",
    63: "7e",
    -64: "7f",
    64: "8001",
    -65: "8101",
    8191: "fe7f",
    -8193: "818001",
    2**31 - 1: "feffffff0f",
    -(2**31): "ffffffff0f",
}
LONG_EDGES = {
    2**31: "8080808010",
    2**56: "808080808080808002",
    2**63 - 1: "feffffffffffffffff01",
    -(2**63): "ffffffffffffffffff01",
    1234567890101112: "f08dd3c8a7b5b104",
}


@pytest.mark.parametrize("value", INT_EDGES)
def test_edges_of_32_bits(value: int) -> None:
    data = bytes.fromhex(INT_EDGES[value])
    assert read_varint(data + b"\x7f", 0) == (value, len(data))
    assert read_varint(b"\x7f" + data, 1, LONG_BITS) == (value, 1 + len(data))


@pytest.mark.parametrize("value", LONG_EDGES)
def test_edges_of_64_bits(value: int) -> None:
    data = bytes.fromhex(LONG_EDGES[value])
    assert read_varint(data, 0, LONG_BITS) == (value, len(data))


def test_too_many_bits_are_refused() -> None:
    for data in (b"\xff" * 5 + b"\x01", b"\xff" * 4 + b"\x10"):
        with pytest.raises(CorruptBatch):
            read_varint(data, 0)
    for data in (b"\xff" * 10 + b"\x01", b"\xff" * 9 + b"\x02"):
        with pytest.raises(CorruptBatch):
            read_varint(data, 0, LONG_BITS)


def test_bytes_that_end_first_are_an_index_error() -> None:
    for data in (b"", b"\x80", b"\xff\xff"):
        with pytest.raises(IndexError):
            read_varint(data, 0)


@given(st.integers(-(2**63), 2**63 - 1))
def test_whatever_was_written_is_read(value: int) -> None:
    data = varint(value)
    assert read_varint(data, 0, LONG_BITS) == (value, len(data))
