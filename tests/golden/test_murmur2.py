"""Hashes of Kafka's default partitioner for keyed records."""

from __future__ import annotations

import pytest

from kprod_ext import murmur2

PARTITION_COUNTS = (3, 6, 12, 100)

# Key, hash, then the partition among 3, 6, 12 and 100. The first rows are also in Kafka's own
# tests (UtilsTest.testMurmur2), the rows with NUL and 0xFF bytes in librdkafka's.
VECTORS = [
    (b"", 0x106E08D9, (0, 3, 9, 81)),
    (b"a", 0xA2D0B27C, (1, 4, 4, 24)),
    (b"1", 0x892E6F8F, (0, 3, 3, 59)),
    (b"21", 0xC5F2F8EC, (0, 0, 0, 40)),
    (b"abc", 0x1C94221B, (0, 3, 3, 7)),
    (b"foobar", 0xD0E47BBE, (0, 0, 6, 66)),
    (b"kafka", 0xD067CF64, (1, 4, 4, 80)),
    (b"1234", 0x9FC97B14, (0, 0, 0, 40)),
    (b"234", 0xE7C009CA, (2, 2, 2, 66)),
    (b"34", 0x873930DA, (0, 0, 6, 70)),
    (b"4", 0x5A4B5CA1, (1, 1, 1, 53)),
    (b"giberish123456789", 0x8F552B0C, (2, 2, 8, 20)),
    (b"a-little-bit-long-string", 0xC53B1DA0, (2, 2, 8, 12)),
    (b"a-little-bit-longer-string", 0xA768C9C3, (2, 5, 11, 19)),
    (b"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8", 0xFC7D49CD, (2, 5, 5, 77)),
    (b"PreAmbleWillBeRemoved,ThePrePartThatIs", 0x78424F1C, (2, 2, 8, 48)),
    (b"reAmbleWillBeRemoved,ThePrePartThatIs", 0x4A62B377, (2, 5, 11, 55)),
    (b"eAmbleWillBeRemoved,ThePrePartThatIs", 0xE0E4E09E, (1, 4, 10, 46)),
    (b"AmbleWillBeRemoved,ThePrePartThatIs", 0x62B8B43F, (0, 3, 3, 35)),
    (b"key-0", 0x01BDB5B9, (1, 1, 1, 41)),
    (b"key-1", 0x0B8601B8, (0, 0, 0, 40)),
    (b"key-2", 0x32CC9A86, (2, 2, 2, 2)),
    (b"hello world", 0x48D0C363, (1, 1, 7, 59)),
    (b"\x00", 0x166197BC, (2, 2, 8, 88)),
    (b"\x00\x00\x00\x00", 0x32B89340, (1, 4, 4, 20)),
    (b"\xff\xff\xff\xff", 0x266546A5, (2, 5, 5, 29)),
    ("Übergröße".encode(), 0x93BA622D, (0, 3, 9, 33)),
]


@pytest.mark.parametrize(("key", "expected", "partitions"), VECTORS)
def test_hash_and_partition(key: bytes, expected: int, partitions: tuple[int, ...]) -> None:
    assert murmur2(key) == expected
    assert tuple((murmur2(key) & 0x7FFFFFFF) % n for n in PARTITION_COUNTS) == partitions


@pytest.mark.parametrize("key", [row[0] for row in VECTORS])
def test_any_buffer_has_the_hash_of_its_bytes(key: bytes) -> None:
    padded = memoryview(b"!" + key)[1:]
    assert murmur2(bytearray(key)) == murmur2(memoryview(key)) == murmur2(padded) == murmur2(key)


@pytest.mark.parametrize("key", [None, "kafka", 7, [1, 2]])
def test_hashing_anything_but_bytes_raises_type_error(key: object) -> None:
    with pytest.raises(TypeError):
        murmur2(key)  # type: ignore[arg-type]
