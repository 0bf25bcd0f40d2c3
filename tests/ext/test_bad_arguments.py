"""Whatever is passed in: a built-in exception, an unchanged batch, nothing kept."""

from __future__ import annotations

import sys
import tracemalloc
from array import array
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from kprod_ext import MemoryRecordsBuilder, batch_size_upper_bound
from tests.support.batch_writing import HEADER_BYTES, new_builder

BAD_HEADERS = [
    (None, TypeError),
    (7, TypeError),
    ("ab", TypeError),
    ([b"ab"], TypeError),
    ({"ab": b""}, TypeError),
    ([("k",)], TypeError),
    ([("k", b"v", b"w")], TypeError),
    ([["k", b"v"]], TypeError),
    ([(None, b"v")], TypeError),
    ([(b"k", b"v")], TypeError),
    ([(1, b"v")], TypeError),
    ([("k", "v")], TypeError),
    ([("k", 1)], TypeError),
    ([("k", bytearray(b"v"))], TypeError),
    ([("ok", b"v"), ("\ud800", b"v")], TypeError),
]


CALLS: list[Callable[..., Any]] = [
    MemoryRecordsBuilder.has_room_for,
    MemoryRecordsBuilder.try_append,
    MemoryRecordsBuilder.append,
    lambda builder, _, *record: batch_size_upper_bound(*record),
]


@pytest.mark.parametrize("call", CALLS)
@pytest.mark.parametrize(("headers", "error"), BAD_HEADERS)
def test_headers(call: Callable[..., Any], headers: object, error: type[Exception]) -> None:
    builder = new_builder()
    with pytest.raises(error):
        call(builder, 0, bytearray(b"k"), None, headers)
    assert untouched(builder)


def untouched(builder: MemoryRecordsBuilder) -> bool:
    """Nothing was appended, and the batch is still open."""
    return (
        builder.record_count == 0
        and builder.estimated_bytes_written == HEADER_BYTES
        and not builder.closed_for_append
    )


@pytest.mark.parametrize(
    "data",
    [
        bytearray(b"abcd"),
        memoryview(b"abcd"),
        memoryview(bytearray(b"__abcd"))[2:],
        array("B", b"abcd"),
        np.frombuffer(b"abcd", np.uint8).reshape(2, 2),
    ],
)
def test_any_contiguous_buffer_is_its_bytes(data: Any) -> None:
    builder, plain = new_builder(), new_builder()
    builder.append(0, data, data)
    plain.append(0, b"abcd", b"abcd")
    builder.close()
    plain.close()
    assert builder.build() == plain.build()


@pytest.mark.parametrize("bad_value", [object(), memoryview(b"abcdef")[::2]])
@pytest.mark.parametrize("headers", [[], [("h", bytearray(b"x"))], [("\ud800", None)], [(1, 2)]])
def test_nothing_is_kept_of_the_arguments(bad_value: Any, headers: Any) -> None:
    key, value = bytearray(b"key"), bytes(bytearray(b"value"))
    arguments = (key, value, headers, bad_value)
    builder = new_builder(100_000)
    before = [sys.getrefcount(argument) for argument in arguments]
    for call in CALLS * 50:
        attempt(call, builder, 0, key, bad_value, headers)
        attempt(call, builder, 0, value, key, headers)
    assert [sys.getrefcount(argument) for argument in arguments] == before
    key.append(0)  # raises BufferError if a view of it were still held


def test_no_memory_is_kept_of_many_headers() -> None:
    headers = [(f"name-{i}", b"value") for i in range(100)]
    builder = new_builder()
    tracemalloc.start()
    try:
        batch_size_upper_bound(None, None, headers)
        before, _ = tracemalloc.get_traced_memory()
        for _ in range(100):
            builder.has_room_for(0, None, None, headers)
        after, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert after - before < 3200, "less than what one call needs for the time it takes"


def attempt(call: Callable[..., Any], builder: MemoryRecordsBuilder, *record: Any) -> None:
    """Make the call; it may fail, but only with an exception of the kinds documented."""
    try:
        call(builder, *record)
    except (TypeError, ValueError, BufferError):
        return
