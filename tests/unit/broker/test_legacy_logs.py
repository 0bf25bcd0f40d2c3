"""Logs with message formats 0 and 1 are opened, recovered, read and cleaned without damage."""

from __future__ import annotations

import os
import struct
from pathlib import Path

import pytest

from kprod.broker.log.checkpoint_files import StorageError
from kprod.broker.log.indexes import TimestampOffset
from kprod.broker.log.log_cleaner import LogCleaner
from kprod.broker.log.log_config import LogConfig
from kprod.broker.log.log_files import check_directory
from kprod.broker.log.partition_log import PartitionLog
from tests.support.legacy_messages import CODECS, legacy_message, legacy_wrapper
from tests.support.raw_batch import raw_batch
from tests.unit.broker.logs import SMALL, append, open_log, read_log, records

Stored = list[tuple[int, bytes | None]]
FORMATS = [
    pytest.param(magic, codec, id=f"format {magic}, {name}")
    for magic in (0, 1)
    for codec, name in enumerate(CODECS)
    if (magic, name) != (0, "lz4")  # its frames have a wrong checksum (KAFKA-3160)
]
DAY_MS = 24 * 3_600_000


def messages(first: int, count: int, magic: int, codec: int) -> bytes:
    """``count`` messages, each with a value of 100 bytes that begins with its offset."""
    values = [b"%d " % n + b"x" * 100 for n in range(first, first + count)]
    if codec:
        return legacy_wrapper(first, values, magic, codec)
    return b"".join(legacy_message(first + n, value, magic) for n, value in enumerate(values))


def write(directory: Path, base: int, content: bytes) -> Path:
    path = directory / f"{base:020d}.log"
    path.write_bytes(content)
    return path


def stored(log: PartitionLog) -> Stored:
    return [(record.offset, record.value) for record in records(log)]


def numbers(log: PartitionLog, start: int = 0) -> list[int]:
    pairs = [(record.offset, record.value or b"") for record in records(log, start)]
    assert all(int(value.split()[0]) == offset for offset, value in pairs)
    return [offset for offset, _ in pairs]


@pytest.mark.parametrize("recovery_point", [None, 0], ids=["clean", "crashed"])
@pytest.mark.parametrize(("magic", "codec"), FORMATS)
def test_old_segments_are_read_and_new_records_appended(
    tmp_path: Path, magic: int, codec: int, recovery_point: int | None
) -> None:
    contents = {
        0: raw_batch([b"0", b"1"], base_timestamp=0, max_timestamp=0),
        2: messages(2, 5, magic, codec),
        7: messages(7, 3, magic, codec) + messages(10, 5, magic, codec),
    }
    paths = {base: write(tmp_path, base, content) for base, content in contents.items()}
    log = open_log(tmp_path, recovery_point)
    assert {base: path.read_bytes() for base, path in paths.items()} == contents
    assert (log.start_offset, log.end_offset, log.leader_epoch) == (0, 15, 0)
    for start in range(15):
        assert numbers(log, start) == list(range(start, 15))
    if magic:
        for time in (3, 12):
            assert log.view().find_timestamp(time) == TimestampOffset(time, time)
        assert log.view().largest_timestamp() == TimestampOffset(14, 14)
    assert append(log, b"15").base_offset == 15
    log.close()
    assert numbers(open_log(tmp_path, recovery_point)) == list(range(16))
    contents[7] += paths[7].read_bytes()[len(contents[7]) :]
    assert {base: path.read_bytes() for base, path in paths.items()} == contents
    assert not list(check_directory(tmp_path))


WRONG_CRC = messages(3, 1, 1, 0)[:-1] + b"?" + messages(4, 2, 1, 0)


@pytest.mark.parametrize("rest", [messages(3, 1, 1, 0)[:-1], WRONG_CRC], ids=["torn", "wrong CRC"])
def test_recovery_truncates_only_the_damaged_part(tmp_path: Path, rest: bytes) -> None:
    whole = messages(0, 3, 1, 0)
    path = write(tmp_path, 0, whole + rest)
    log = open_log(tmp_path, recovery_point=0)
    assert numbers(log) == [0, 1, 2]
    log.close()
    assert path.read_bytes() == whole


def test_messages_that_cannot_be_decompressed_are_kept_and_served(tmp_path: Path) -> None:
    content = legacy_message(4, b"frames of lz4 with a wrong checksum", 0, attributes=3)
    path = write(tmp_path, 0, content)
    log = open_log(tmp_path, recovery_point=0)
    assert log.end_offset == 5
    assert read_log(log, 0, 1_000) == path.read_bytes() == content


@pytest.mark.parametrize("magic", [0, 1])
def test_old_segments_expire_by_timestamp_or_file_time(tmp_path: Path, magic: int) -> None:
    for base in (0, 5):
        os.utime(write(tmp_path, base, messages(base, 5, magic, 0)), (1_000, 1_000))
    log = open_log(tmp_path, config=LogConfig(retention_ms=DAY_MS))
    modified = 9 if magic else 1_000_000
    assert log.delete_old_segments(modified + DAY_MS) == (1 if magic else 0)
    assert log.delete_old_segments(modified + DAY_MS + 1_000) == (1 if magic else 2)
    assert (log.start_offset, log.end_offset) == (10, 10)


@pytest.mark.parametrize(("magic", "codec"), FORMATS)
def test_compaction_keeps_the_last_message_of_each_key(
    tmp_path: Path, magic: int, codec: int
) -> None:
    keys = [b"a", b"b", b"a", b"gone", b"gone"]
    values: list[bytes | None] = [b"0", b"1", b"2", b"3", None]
    if codec:
        content = legacy_wrapper(0, values, magic, codec, keys=keys)
    else:
        content = b"".join(
            legacy_message(n, value, magic, key=key)
            for n, (key, value) in enumerate(zip(keys, values, strict=True))
        )
    write(tmp_path, 0, content)
    write(tmp_path, 5, legacy_message(5, b"5", magic, key=b"c"))
    log = open_log(tmp_path)
    cleaner = LogCleaner(tmp_path)
    cleaner.clean(log, 1_000)
    kept: Stored = [(1, b"1"), (2, b"2"), (4, None), (5, b"5")]
    assert stored(log) == kept
    log.close()
    again = open_log(tmp_path, recovery_point=0)
    assert stored(again) == kept
    assert again.view().find_timestamp(-1) == TimestampOffset(1 if magic else -1, 1)
    LogCleaner(tmp_path).clean(again, 1_000 + 2 * SMALL.delete_retention_ms)
    assert stored(again) == [(1, b"1"), (2, b"2"), (5, b"5")]


def test_a_damaged_segment_without_an_index_is_not_changed(tmp_path: Path) -> None:
    content = raw_batch([b"0"]) + b"\xff" * 100
    path = write(tmp_path, 0, content)
    write(tmp_path, 1, raw_batch([b"1"], base_offset=1))
    for _ in range(2):
        log = open_log(tmp_path)
        assert log.end_offset == 2
        log.close()
    assert path.read_bytes() == content


def test_a_damaged_swap_file_is_refused_and_not_changed(tmp_path: Path) -> None:
    content = struct.pack(">qi", 0, -1) + b"\xff" * 100
    swapped = tmp_path / f"{0:020d}.log.swap"
    for _ in range(2):
        swapped.write_bytes(content)
        with pytest.raises(StorageError, match="restore the directory"):
            open_log(tmp_path)
        assert swapped.read_bytes() == content
