"""The functions of the lz4 package's library are used if they are there and do what it does."""

from __future__ import annotations

import pytest

from kprod.buffer.compression import compressor
from kprod.buffer.lz4_library import SAMPLE, lz4_frames


def through_the_package(records: memoryview) -> bytes:
    from lz4 import frame

    packed: bytes = frame.compress(
        records, compression_level=1, block_linked=False, store_size=False
    )
    return packed


def test_the_package_has_them() -> None:
    found = lz4_frames(1, through_the_package)
    assert found is not None, "lz4 batches are compressed one by one, which is slower"
    assert found(SAMPLE) == through_the_package(memoryview(SAMPLE))
    assert type(compressor("lz4", None)) is type(found)


@pytest.mark.parametrize("library", ["/nowhere/library.so", "libc.so.6"])
def test_a_library_without_them_is_not_used(library: str) -> None:
    assert lz4_frames(1, through_the_package, library) is None


def test_a_library_that_makes_other_frames_is_not_used() -> None:
    assert lz4_frames(1, lambda records: through_the_package(records) + b"\0\0\0\0") is None
    assert lz4_frames(12, through_the_package) is None
