"""Record batches built with struct: valid by default, with any field changed on request."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Any

from crc32c import crc32c


def varint(value: int) -> bytes:
    rest = (value << 1) ^ (value >> 63)
    out = bytearray()
    while rest >= 0x80:
        out.append(rest & 0x7F | 0x80)
        rest >>= 7
    out.append(rest)
    return bytes(out)


def raw_record(
    offset_delta: int, value: bytes | None, key: bytes | None = None, timestamp_delta: int = 0
) -> bytes:
    body = b"\0" + varint(timestamp_delta) + varint(offset_delta)
    body += _field(key) + _field(value) + varint(0)
    return varint(len(body)) + body


def _field(data: bytes | None) -> bytes:
    return varint(-1) if data is None else varint(len(data)) + data


def raw_batch(values: Sequence[bytes | None] = (b"v",), **changes: Any) -> bytes:
    """A batch of ``values`` without producer id, at timestamp 1,000.

    ``changes`` replace header fields by name, ``payload`` everything after the header; the CRC is
    correct unless ``crc`` is given.
    """
    payload = b"".join(raw_record(number, value) for number, value in enumerate(values))
    payload = bytes(changes.pop("payload", payload))
    front = {"base_offset": 0, "batch_length": 49 + len(payload), "leader_epoch": -1, "magic": 2}
    header: dict[str, int] = {
        "attributes": 0,
        "last_offset_delta": len(values) - 1,
        "base_timestamp": 1_000,
        "max_timestamp": 1_000,
        "producer_id": -1,
        "producer_epoch": -1,
        "base_sequence": -1,
        "record_count": len(values),
    }
    crc = changes.pop("crc", None)
    assert changes.keys() <= front.keys() | header.keys(), changes
    front.update({name: changes.pop(name) for name in front.keys() & changes.keys()})
    header.update(changes)
    covered = struct.pack(">hiqqqhii", *header.values()) + payload
    start = struct.pack(">qiib", *front.values())
    return start + struct.pack(">I", crc32c(covered) if crc is None else crc) + covered
