"""LZ4 frames by the functions of the lz4 package's library, called directly."""

from __future__ import annotations

import ctypes
import random
from concurrent.futures import ThreadPoolExecutor

import lz4.frame
import pytest
from lz4.frame import _frame

from kprod_ext import Lz4Frames

TEXT = b"".join(b"%d flights left, " % number for number in range(20_000))
NOISE = random.Random(3).randbytes(200_000)
SIZES = [0, 1, 15, 64 * 1024 - 1, 64 * 1024, 64 * 1024 + 1, 200_000]

Compress = ctypes.CFUNCTYPE(
    ctypes.c_size_t,
    *(ctypes.c_void_p, ctypes.c_size_t, ctypes.c_void_p, ctypes.c_size_t, ctypes.c_void_p),
)


def address(name: str) -> int:
    return ctypes.cast(getattr(ctypes.CDLL(_frame.__file__), name), ctypes.c_void_p).value or 0


def frames(level: int = 0) -> Lz4Frames:
    return Lz4Frames(address("LZ4F_compressFrame"), address("LZ4F_compressFrameBound"), level)


def by_the_package(records: bytes, level: int) -> bytes:
    packed: bytes = lz4.frame.compress(
        records, compression_level=level, block_linked=False, store_size=False
    )
    return packed


@pytest.mark.parametrize("level", [-3, 0, 1, 3, 12, 17])
@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("content", [TEXT, NOISE], ids=["text", "noise"])
def test_the_frame_is_the_one_that_the_package_makes(level: int, size: int, content: bytes) -> None:
    frame = frames(level)(memoryview(content)[:size])
    assert frame == by_the_package(content[:size], level)
    assert lz4.frame.decompress(frame) == content[:size]


def test_several_become_one_frame_each() -> None:
    records = [content[:size] for size in SIZES for content in (TEXT, NOISE)]
    made = frames(1).several([memoryview(each) for each in records])
    assert [bytes(frame) for frame in made] == [by_the_package(each, 1) for each in records]
    assert list(frames().several([])) == []


def test_what_is_no_buffer_is_refused_and_others_are_let_go() -> None:
    records = bytearray(TEXT)
    with pytest.raises(TypeError):
        frames().several([records, 7])  # type: ignore[list-item]
    records.clear()  # BufferError while a view of it is out
    with pytest.raises(TypeError):
        frames().several(None)  # type: ignore[arg-type]


def test_a_library_that_fails_is_told_of_and_its_input_let_go() -> None:
    calls: list[int] = []

    def fail(_frame: int, _room: int, _records: int, size: int, _preferences: int) -> int:
        calls.append(size)
        return 2**64 - 1  # as the library tells of errors

    callback = Compress(fail)
    function = ctypes.cast(callback, ctypes.c_void_p).value or 0
    failing = Lz4Frames(function, address("LZ4F_compressFrameBound"), 0)
    records = bytearray(TEXT)
    with pytest.raises(RuntimeError, match=f"could not compress {len(TEXT)} bytes"):
        failing.several([records, records])
    assert calls == [len(TEXT)]
    records.clear()
    with pytest.raises(RuntimeError):
        failing(b"x")


@pytest.mark.parametrize("addresses", [(0, 1), (1, 0)])
def test_there_is_nothing_at_address_zero(addresses: tuple[int, int]) -> None:
    with pytest.raises(ValueError, match="address 0"):
        Lz4Frames(*addresses, 1)


def test_threads_may_compress_at_the_same_time() -> None:
    shared = frames(1)
    texts = [bytes([65 + number]) * 1000 + TEXT for number in range(4)]
    alone = [by_the_package(text, 1) for text in texts]
    with ThreadPoolExecutor(4) as threads:
        for _ in range(10):
            assert list(threads.map(shared, texts)) == alone
