"""Producer state on disk."""

from __future__ import annotations

import struct
from pathlib import Path

from crc32c import crc32c

from kprod.broker.log.producer_snapshot import read_snapshot, snapshot_offsets, write_snapshot
from kprod.broker.producer_state import AppendedBatch, ProducerState


def some_state() -> ProducerState:
    state = ProducerState()
    state.restore(4000, 3, AppendedBatch(17, 900, 5, 1_700_000_000_000))
    state.restore(4001, 0, AppendedBatch(0, 901, 0, -1))
    return state


def test_what_was_written_is_read(tmp_path: Path) -> None:
    write_snapshot(tmp_path, 902, some_state())
    found = read_snapshot(tmp_path, 902)
    assert found is not None
    assert dict(found) == dict(some_state())


def test_the_bytes_are_kafkas(tmp_path: Path) -> None:
    state = ProducerState()
    state.restore(4000, 3, AppendedBatch(17, 900, 5, 1234))
    write_snapshot(tmp_path, 901, state)
    data = (tmp_path / "00000000000000000901.snapshot").read_bytes()
    rest = struct.pack(">iqhiqiqiq", 1, 4000, 3, 17, 900, 5, 1234, -1, -1)
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


def test_the_newest_two_are_kept(tmp_path: Path) -> None:
    for offset in (3, 10, 200, 1000):
        write_snapshot(tmp_path, offset, ProducerState())
    assert snapshot_offsets(tmp_path) == [200, 1000]
