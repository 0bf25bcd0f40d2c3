"""Sizes are known before anything is written, and are then exactly those."""

from __future__ import annotations

import mmap
import random
from collections.abc import Iterable

import pytest

from kprod_ext import batch_size_upper_bound
from tests.support.batch_writing import Written, new_builder, write_batch


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
