"""Producer state on disk."""

from __future__ import annotations

import struct
from collections import deque
from pathlib import Path

from crc32c import crc32c

from kprod.broker.log.producer_snapshot import read_snapshot, write_snapshot
from kprod.broker.log.producer_state import AppendedBatch, ProducerEntry, ProducerState

FIRST = ProducerEntry(3, deque([AppendedBatch(17, 900, 5, 1234)], 5), 12, 895, 1234)
STATE = ProducerState([(4000, FIRST), (4001, ProducerEntry(4))])


def test_the_bytes_are_kafkas(tmp_path: Path) -> None:
    write_snapshot(tmp_path, 901, STATE)
    data = (tmp_path / "00000000000000000901.snapshot").read_bytes()
    rest = struct.pack(">iqhiqiqiq", 2, 4000, 3, 17, 900, 5, 1234, 12, 895)
    rest += struct.pack(">qhiqiqiq", 4001, 4, -1, -1, 0, -1, -1, -1)
    assert data == struct.pack(">hI", 1, crc32c(rest)) + rest


def test_a_damaged_snapshot_is_none(tmp_path: Path) -> None:
    write_snapshot(tmp_path, 902, STATE)
    path = tmp_path / "00000000000000000902.snapshot"
    whole = path.read_bytes()
    for at in range(len(whole)):
        damaged = bytearray(whole)
        damaged[at] ^= 1
        path.write_bytes(damaged)
        assert read_snapshot(tmp_path, 902) is None
        path.write_bytes(whole[:at])
        assert read_snapshot(tmp_path, 902) is None
