"""Whole record batches of format v2, byte for byte, and the records in them."""

from __future__ import annotations

from typing import Any, NamedTuple

from tests.support.batch_writing import Written


class GoldenBatch(NamedTuple):
    """``data`` is the batch in a log; ``state`` the producer's part of its header."""

    name: str
    data: bytes
    records: list[Written]
    state: dict[str, Any]


_PARTED = 1_700_000_000_000
_PAIR = (("header1", b"aaa"), ("header2", b"bbb"))

GOLDEN_BATCHES = [
    GoldenBatch(
        "a broker's answer, from kafka-python's test suite",
        bytes.fromhex(
            "00000000000000000000003b00000001020318a2700000000000000000015dff7b063c0000015dff7b063c"
            "ffffffffffffffffffffffffffff0000000112000000010631323300"
        ),
        [Written(1_503_229_838_908, None, b"123")],
        {},
    ),
    GoldenBatch(
        "null and empty values, a decreasing timestamp, headers; read by librdkafka",
        bytes.fromhex(
            "000000000000000000000057ffffffff02619698ee0000000000020000018bcfe568000000018bcfe56801"
            "0000000000000fa00003000000110000000314000000046b31047631000c00020201010026000904000006"
            "04683102780468320104c3bc00"
        ),
        [
            Written(_PARTED, b"k1", b"v1"),
            Written(_PARTED + 1, None, None),
            Written(_PARTED - 5, b"", b"", (("h1", b"x"), ("h2", None), ("ü", b""))),
        ],
        {"producer_id": 4000, "producer_epoch": 3, "base_sequence": 17},
    ),
    GoldenBatch(
        "transactional, from aiokafka's test suite",
        bytes.fromhex(
            "0000000000000000000001c1ffffffff02eb7290c6001000000009000000000098967f0000000000989688"
            "000000000001e240007b0000270f0000000a"
        )
        + b"".join(
            bytes.fromhex(f"4e00{2 * i:02x}{2 * i:02x}08746573740a537570657204")
            + bytes.fromhex("0e68656164657231066161610e6865616465723206626262")
            for i in range(10)
        ),
        [Written(9_999_999 + i, b"test", b"Super", _PAIR) for i in range(10)],
        {
            "producer_id": 123_456,
            "producer_epoch": 123,
            "base_sequence": 9999,
            "transactional": True,
        },
    ),
    GoldenBatch(
        "one header, from kafka-python's test suite",
        bytes.fromhex(
            "00000000000000000000004500000000025cd8ef520000000000000000016585b6f3c1000001"
            "6585b6f3c1ffffffffffffffffffffffffffff000000012600000001066864720208686b6579086876616c"
        ),
        [Written(0x0165_85B6_F3C1, None, b"hdr", (("hkey", b"hval"),))],
        {},
    ),
    GoldenBatch(
        "two records at offset 1 in leader epoch 2, from kafka-python's test suite",
        bytes.fromhex(
            "0000000000000001000000400000000202c85cbd230000000000010000015dff7cdd6c0000015dff7cde14"
            "ffffffffffffffffffffffffffff000000020c0000000100000e00d00202010000"
        ),
        [Written(0x015D_FF7C_DD6C, None, b""), Written(0x015D_FF7C_DE14, None, b"")],
        {},
    ),
]
