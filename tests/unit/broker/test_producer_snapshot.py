"""Producer state on disk."""

from __future__ import annotations

import struct
from collections import deque
from pathlib import Path

from crc32c import crc32c

from kprod.broker.log.producer_snapshot import read_snapshot, write_snapshot
from kprod.broker.log.producer_state import AppendedBatch, ProducerEntry, ProducerState


def some_state() -> ProducerState:
    last = AppendedBatch(17, 900, 5, 1_700_000_000_000)
    undated = AppendedBatch(0, 901, 0, -1)
    return ProducerState(
        [
            (4000, ProducerEntry(3, deque([last], 5), last_timestamp=last.timestamp)),
            (4001, ProducerEntry(0, deque([undated], 5))),
            (4002, ProducerEntry(8, coordinator_epoch=2, last_timestamp=5)),
            (4003, ProducerEntry(9, deque([undated], 5), 2, 850)),
        ]
    )


def test_the_bytes_are_kafkas(tmp_path: Path) -> None:
    batches = deque([AppendedBatch(17, 900, 5, 1234)], 5)
    first = ProducerEntry(3, batches, 12, 895, 1234)
    write_snapshot(tmp_path, 901, ProducerState([(4000, first), (4001, ProducerEntry(4))]))
    data = (tmp_path / "00000000000000000901.snapshot").read_bytes()
    rest = struct.pack(">iqhiqiqiq", 2, 4000, 3, 17, 900, 5, 1234, 12, 895)
    rest += struct.pack(">qhiqiqiq", 4001, 4, -1, -1, 0, -1, -1, -1)
    assert data == struct.pack(">hI", 1, crc32c(rest)) + rest


def test_a_damaged_snapshot_is_none(tmp_path: Path) -> None:
    write_snapshot(tmp_path, 902, some_state())
    path = tmp_path / "00000000000000000902.snapshot"
    whole = path.read_bytes()
    for at in range(len(whole)):
        damaged = bytearray(whole)
        damaged[at] ^= 1
        path.write_bytes(damaged)
        assert read_snapshot(tmp_path, 902) is None
        path.write_bytes(whole[:at])
        assert read_snapshot(tmp_path, 902) is None
