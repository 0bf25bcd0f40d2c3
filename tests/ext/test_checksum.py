"""The checksum of batches: every way to compute it agrees with a package that does nothing else."""

from __future__ import annotations

import random

import pytest
from crc32c import crc32c as judge
from hypothesis import given
from hypothesis import strategies as st

from kprod_ext.checksum import crc32c, crc32c_joined, ways

BLOCK = 256
"""Bytes that the widest way takes at once."""

every_way = pytest.mark.parametrize("way", ways())
noise = random.Random(7).randbytes(20 * BLOCK)


@every_way
def test_the_value_that_the_algorithm_is_checked_by(way: str) -> None:
    assert crc32c(b"123456789", way) == 0xE3069283


@every_way
def test_the_examples_of_rfc_3720(way: str) -> None:
    assert crc32c(bytes(32), way) == 0x8A9136AA
    assert crc32c(b"\xff" * 32, way) == 0x62A8AB43
    assert crc32c(bytes(range(32)), way) == 0x46DD794E


@every_way
def test_every_length_around_the_first_blocks(way: str) -> None:
    for size in range(5 * BLOCK):
        assert crc32c(noise[:size], way) == judge(noise[:size]), size


@every_way
def test_every_alignment(way: str) -> None:
    for start in range(65):
        part = memoryview(noise)[start : start + 9 * BLOCK + 5]
        assert crc32c(part, way) == judge(part), start


@every_way
@pytest.mark.parametrize("size", [512 * 1024 - 1, 512 * 1024, 3_000_001])
def test_what_is_long(way: str, size: int) -> None:
    data = random.Random(size).randbytes(size)
    assert crc32c(data, way) == judge(data)


@every_way
@given(data=st.binary(max_size=3 * BLOCK), zeros=st.integers(0, 3 * BLOCK))
def test_any_bytes(way: str, data: bytes, zeros: int) -> None:
    for whole in (bytes(zeros) + data, data + bytes(zeros)):
        assert crc32c(whole, way) == judge(whole)


@given(first=st.binary(max_size=3 * BLOCK), second=st.binary(max_size=3 * BLOCK))
def test_two_pieces_make_a_whole(first: bytes, second: bytes) -> None:
    assert crc32c_joined(judge(first), judge(second), len(second)) == judge(first + second)


@pytest.mark.parametrize("size", [0, 1, 131_011, 2**20, 2**20 + 1, 5_000_003])
def test_the_second_piece_may_be_long(size: int) -> None:
    second = random.Random(size).randbytes(size)
    assert crc32c_joined(judge(noise), judge(second), size) == judge(noise + second)


def test_what_could_be_no_piece_is_refused() -> None:
    with pytest.raises(ValueError, match="-1"):
        crc32c_joined(0, 0, -1)
    for wrong in (-1, 2**32):
        with pytest.raises(OverflowError):
            crc32c_joined(wrong, 0, 1)


def test_the_fastest_way_is_taken_and_the_package_is_always_there() -> None:
    assert ways()[-1] == "package"
    assert crc32c(noise) == crc32c(noise, ways()[0])


def test_a_way_that_is_not_there_is_refused() -> None:
    with pytest.raises(ValueError, match="abacus"):
        crc32c(b"", "abacus")


def test_what_is_no_buffer_is_refused() -> None:
    with pytest.raises(TypeError):
        crc32c("text")  # type: ignore[arg-type]
