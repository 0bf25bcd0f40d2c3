"""Sizes are known before anything is written, and are then exactly those."""

from __future__ import annotations

import mmap
import random
from collections.abc import Iterable

import pytest

from kprod_ext import batch_size_upper_bound
from tests.support.batch_writing import HEADER_BYTES, Written, new_builder, write_batch

# Key bytes, value bytes (None: null), headers, the record's size, the bound of its batch.
SIZES = [
    (None, 0, (), 7, 85),
    (None, None, (), 7, 85),
    (2, 10, (), 19, 97),
    (None, 63, (), 71, 148),
    (None, 64, (), 73, 150),
    (None, 1000, (("h1", b"x"),), 1014, 1091),
    (None, 16_323, (), 16_334, 16_410),
]


def filled(size: int | None) -> bytes | None:
    """``size`` bytes, or null."""
    return None if size is None else b"x" * size


@pytest.mark.parametrize(("key", "value", "headers", "size", "bound"), SIZES)
def test_size_and_bound(
    key: int | None, value: int | None, headers: tuple[tuple[str, bytes]], size: int, bound: int
) -> None:
    record = Written(0, filled(key), filled(value), headers)
    builder = new_builder(32_768)
    assert builder.append(*record) == size
    assert batch_size_upper_bound(*record[1:]) == bound
    assert builder.uncompressed_bytes == builder.max_record_size == size
    assert builder.estimated_bytes_written == HEADER_BYTES + size


def test_the_bound_holds_for_the_worst_timestamp() -> None:
    builder = new_builder()
    builder.append(0, None, None)
    size = builder.append(2**63 - 1, b"k", b"v")
    assert HEADER_BYTES + size <= batch_size_upper_bound(b"k", b"v")


@pytest.mark.parametrize("sizes", [range(600), range(4_030, 4_170), (8_191, 8_192, 100_000)])
def test_all_bytes_arrive_however_many_there_are(sizes: Iterable[int]) -> None:
    noise = random.Random(2).randbytes(100_000)
    for size in sizes:
        batch = write_batch([Written(0, None, noise[:size], ())], 101_000)
        assert batch.endswith(noise[:size] + b"\0"), size  # no headers
        assert len(batch) <= batch_size_upper_bound(None, noise[:size])


def test_more_headers_than_fit_the_stack() -> None:
    headers = [(f"name-{i}", b"%d" % i) for i in range(1000)]
    builder = new_builder(65_536)
    size = builder.append(0, None, None, headers)
    text = sum(2 + len(name) + len(value) for name, value in headers)
    assert size == 3 + 5 + 2 + text  # length; four one-byte fields and null value; header count


@pytest.mark.parametrize("excess", [1, 100])
def test_a_field_beyond_int32_is_refused(excess: int) -> None:
    builder = new_builder()
    with mmap.mmap(-1, 2**31 - 1 + excess) as huge:  # never touched, so never there
        with pytest.raises(ValueError, match="2 GiB"):
            builder.append(0, huge, None)
        with pytest.raises(ValueError, match="2 GiB"):
            builder.try_append(0, None, huge)
    assert builder.record_count == 0


def test_a_record_beyond_int32_is_refused() -> None:
    # One mebibyte, 2,200 times: no memory is spent, and the batch stays as it was.
    headers = [("h", b"x" * 2**20)] * 2200
    builder = new_builder()
    with pytest.raises(ValueError, match="2 GiB"):
        builder.append(0, None, None, headers)
    with pytest.raises(ValueError, match="2 GiB"):
        batch_size_upper_bound(None, None, headers)
    assert builder.record_count == 0
    assert not builder.closed_for_append
