"""The integers inside a record, seen where a record shows them: in its timestamp delta."""

from __future__ import annotations

import pytest

from tests.support.batch_writing import HEADER_BYTES, new_builder

INT64_MAX = 2**63 - 1

# Value, then its bytes; the longer ones are also in Kafka's ByteUtilsTest.
VECTORS = [
    (0, "00"),
    (-1, "01"),
    (1, "02"),
    (23, "2e"),
    (63, "7e"),
    (-64, "7f"),
    (64, "8001"),
    (-65, "8101"),
    (253, "fa03"),
    (8191, "fe7f"),
    (-8192, "ff7f"),
    (8192, "808001"),
    (-8193, "818001"),
    (2**20 - 1, "feff7f"),
    (-(2**20), "ffff7f"),
    (2**27 - 1, "feffff7f"),
    (-(2**27), "ffffff7f"),
    (2**31 - 1, "feffffff0f"),
    (-(2**31), "ffffffff0f"),
    (2**31, "8080808010"),
    (-(2**31) - 1, "8180808010"),
    (2**35, "808080808002"),
    (2**42, "80" * 6 + "02"),
    (2**49, "80" * 7 + "02"),
    (2**56, "80" * 8 + "02"),
    (1234567890101112, "f08dd3c8a7b5b104"),
    (INT64_MAX, "fe" + "ff" * 8 + "01"),
    (-INT64_MAX, "fd" + "ff" * 8 + "01"),
]


@pytest.mark.parametrize(("value", "expected"), VECTORS)
def test_a_varint_has_these_bytes(value: int, expected: str) -> None:
    builder = new_builder()
    first = builder.append(max(0, -value), None, None)
    second = builder.append(max(0, value), None, None)
    builder.close()
    start = HEADER_BYTES + first + 2  # behind the length, one byte here, and the attributes
    assert builder.build()[start:].hex() == expected + "02010100"
    assert second == 6 + len(expected) // 2


@pytest.mark.parametrize(("value", "expected"), [row for row in VECTORS if 0 < row[0] < 10_000])
def test_an_offset_delta_has_the_same_bytes(value: int, expected: str) -> None:
    builder = new_builder(100_000)
    before = sum(builder.append(0, None, None) for _ in range(value))
    builder.append(0, None, None)
    builder.close()
    assert builder.build()[HEADER_BYTES + before + 3 :].hex() == expected + "010100"
