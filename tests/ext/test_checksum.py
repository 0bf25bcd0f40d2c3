"""The checksum of batches: every path to it agrees with a package that does nothing else."""

from __future__ import annotations

import os
import random
import subprocess
import sys

import pytest
from crc32c import crc32c as judge
from hypothesis import given
from hypothesis import strategies as st

from kprod_ext.checksum import crc32c, crc32c_joined, path, paths

SHORT, MIDDLE, LONG = 3 * 256, 3 * 1024, 3 * 8192
"""Bytes that the instructions' path sums in three pieces at once."""

every_path = pytest.mark.parametrize("way", paths())
noise = random.Random(7).randbytes(2 * LONG + 2 * SHORT + 100)


@every_path
def test_the_value_that_the_algorithm_is_checked_by(way: str) -> None:
    assert crc32c(b"123456789", way) == 0xE3069283


@every_path
def test_the_examples_of_rfc_3720(way: str) -> None:
    assert crc32c(bytes(32), way) == 0x8A9136AA
    assert crc32c(b"\xff" * 32, way) == 0x62A8AB43
    assert crc32c(bytes(range(32)), way) == 0x46DD794E


@every_path
@pytest.mark.parametrize("middle", [8, SHORT, MIDDLE, LONG, LONG + MIDDLE + SHORT, 2 * LONG])
def test_every_length_around_the_pieces(way: str, middle: int) -> None:
    for size in range(max(middle - 40, 0), middle + 41):
        assert crc32c(noise[:size], way) == judge(noise[:size]), size


@every_path
def test_every_alignment(way: str) -> None:
    for start in range(65):
        part = memoryview(noise)[start : start + LONG + MIDDLE + SHORT + 5]
        assert crc32c(part, way) == judge(part), start


@every_path
@pytest.mark.parametrize("size", [131_072, 3_000_001])
def test_what_is_long(way: str, size: int) -> None:
    data = random.Random(size).randbytes(size)
    assert crc32c(data, way) == judge(data)


@every_path
@given(data=st.binary(max_size=3 * SHORT), zeros=st.integers(0, 3 * SHORT))
def test_any_bytes(way: str, data: bytes, zeros: int) -> None:
    for whole in (bytes(zeros) + data, data + bytes(zeros)):
        assert crc32c(whole, way) == judge(whole)


@given(first=st.binary(max_size=3 * SHORT), second=st.binary(max_size=3 * SHORT))
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


def test_batches_take_the_fastest_path_and_tables_are_always_there() -> None:
    assert paths()[-1] == "tables"
    assert path() == (os.environ.get("KPROD_CRC32C") or paths()[0])
    assert crc32c(noise) == judge(noise)


def chosen_by(name: str) -> subprocess.CompletedProcess[str]:
    """What a fresh interpreter says is the path, with this in its environment."""
    return subprocess.run(
        [sys.executable, "-c", "from kprod_ext.checksum import path; print(path())"],
        env=os.environ | {"KPROD_CRC32C": name},
        capture_output=True,
        text=True,
        check=False,
    )


@every_path
def test_the_environment_names_a_path(way: str) -> None:
    assert chosen_by(way).stdout.split() == [way]


def test_a_path_that_is_not_there_is_refused() -> None:
    with pytest.raises(ValueError, match=r"tables here, not 'abacus'"):
        crc32c(b"", "abacus")
    refused = chosen_by("abacus")
    assert refused.returncode == 1
    assert "ValueError: the paths to a CRC-32C are" in refused.stderr


def test_what_is_no_buffer_is_refused() -> None:
    with pytest.raises(TypeError):
        crc32c("text")  # type: ignore[arg-type]
