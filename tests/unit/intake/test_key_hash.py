"""Hashes are those of their standards, and partitions those of the clients that use them."""

from __future__ import annotations

import pytest

from kprod.intake.partitioner import FNV1A, KeyHash, magnitude
from kprod_ext import fnv1a

# From the test suite of FNV's authors (FNV-1a, 32 bit).
FNV1A_VECTORS = [
    (b"", 0x811C9DC5),
    (b"a", 0xE40C292C),
    (b"b", 0xE70C2DE5),
    (b"f", 0xE30C2799),
    (b"fo", 0x6222E842),
    (b"foo", 0xA9F37ED7),
    (b"foob", 0x3F5076EF),
    (b"fooba", 0x39AAA18A),
    (b"foobar", 0xBF9CF968),
]


def partition(key_hash: KeyHash, key: bytes | bytearray | memoryview, count: int) -> int:
    return key_hash.partition(key, count)


@pytest.mark.parametrize(("data", "expected"), FNV1A_VECTORS)
@pytest.mark.parametrize("form", [bytes, bytearray, memoryview])
def test_fnv1a(form: type[bytes | bytearray | memoryview], data: bytes, expected: int) -> None:
    assert fnv1a(form(data)) == expected


def test_fnv1a_of_views_whose_items_are_not_numbers_from_0_to_255() -> None:
    view = memoryview(b"\xff\x80")
    assert fnv1a(view.cast("b")) == fnv1a(view)
    assert fnv1a(view.cast("c")) == fnv1a(view)


@pytest.mark.parametrize(("data", "hashed"), FNV1A_VECTORS)
@pytest.mark.parametrize("count", [1, 2, 3, 7, 12, 100, 2**31 - 1])
def test_fnv1a_with_saramas_sign_rule(data: bytes, hashed: int, count: int) -> None:
    signed = hashed - (1 << 32) if hashed >> 31 else hashed
    # In Go the remainder has the sign of the dividend; Sarama then drops the sign.
    remainder = signed - count * int(signed / count)
    assert partition(FNV1A, data, count) == abs(remainder)


def test_the_hash_without_a_magnitude() -> None:
    # -2**31 has no counterpart among 32 bit numbers; its remainder has.
    assert magnitude(0x80000000) % 7 == 2
