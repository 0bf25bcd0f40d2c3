"""Files of a data directory that are missing, cut, or not what was written, and disks that lied."""

from __future__ import annotations

import random
import shutil
import uuid
from collections.abc import Callable
from pathlib import Path

import pytest

from kprod.broker.log.log_config import LogConfig
from kprod.broker.log.log_directories import LogDirectories
from kprod.broker.log.log_files import check_directory
from kprod.broker.log.partition_log import PartitionLog
from kprod.errors import BrokerError
from kprod.records.record_batch import BatchHeader, read_batches
from kprod.types import TopicPartition
from tests.unit.broker.logs import append, produce, read_log, values

WHERE = TopicPartition("t", 0)
CONFIG = LogConfig(segment_bytes=900, index_interval_bytes=150, segment_index_bytes=400)
COUNT = 40
EPOCH_AT = 12
BESIDE = [
    "recovery-point-offset-checkpoint",
    "log-start-offset-checkpoint",
    "t-0/leader-epoch-checkpoint",
    "t-0/*.index",
    "t-0/*.timeindex",
    "t-0/*.snapshot",
]
End = Callable[[LogDirectories], None]
ENDS = [LogDirectories.close, LogDirectories.abandon]


def directory_with_records(path: Path, end: End) -> Path:
    """COUNT batches of one record, of a producer, over several segments and two leader epochs."""
    directory = LogDirectories([path], CONFIG)
    log = directory.create(WHERE, uuid.uuid4())
    for number in range(COUNT):
        if number == COUNT // 2:
            directory.maintain(0)
        produce(log, number)
    end(directory)
    return path / str(WHERE)


def is_whole(path: Path, *, fits: bool = True) -> None:
    """Everything is there, a resent batch is recognised, and the files fit each other."""
    directory = LogDirectories([path], CONFIG)
    log = directory.logs[WHERE]
    assert values(log) == [b"%d" % number for number in range(COUNT)]
    assert produce(log, COUNT - 1).base_offset == COUNT - 1
    assert produce(log, COUNT).base_offset == COUNT
    assert log.end_of_epoch(0) == (0, COUNT + 1)
    directory.close()
    assert not fits or list(check_directory(path / str(WHERE))) == []


DAMAGES = 12


def damage(path: Path, number: int) -> None:
    """Make a file another one: missing, empty, ones, zeros, noise, cut, or with a bit flipped."""
    content = path.read_bytes()
    chance = random.Random(len(content) * DAMAGES + number)
    if number == 0:
        path.unlink()
        return
    fixed = [b"", b"\xff" * 8, bytes(1000), chance.randbytes(len(content)), content[:-3]]
    if number <= len(fixed):
        content = fixed[number - 1]
    elif number < DAMAGES - 4:
        content = content[: chance.randrange(len(content) or 1)]
    else:
        flipped = bytearray(content or b"\0")
        flipped[chance.randrange(len(flipped))] ^= 1 << chance.randrange(8)
        content = bytes(flipped)
    path.write_bytes(content)


@pytest.mark.parametrize("end", ENDS)
@pytest.mark.parametrize("name", BESIDE)
def test_a_file_beside_the_log_is_made_anew(tmp_path: Path, name: str, end: End) -> None:
    """Of a partition's own files, those that recovery reads past are left as they are."""
    whole = tmp_path / "whole"
    directory_with_records(whole, end)
    crashed = end is LogDirectories.abandon
    if crashed and "*" in name:
        (whole / BESIDE[0]).unlink()
    for number in range(DAMAGES):
        path = tmp_path / str(number)
        shutil.copytree(whole, path)
        for file in path.glob(name):
            damage(file, number)
        try:
            is_whole(path, fits=crashed or "*" not in name)
        except (AssertionError, BrokerError) as error:
            raise AssertionError(f"{name}, damage {number}") from error


@pytest.mark.parametrize("end", ENDS)
@pytest.mark.parametrize("content", [None, b"", b"{}", b"noise"])
def test_the_mark_of_a_clean_shutdown_may_be_wrong(
    tmp_path: Path, end: End, content: bytes | None
) -> None:
    directory_with_records(tmp_path, end)
    mark = tmp_path / ".kafka_cleanshutdown"
    mark.unlink(missing_ok=True) if content is None else mark.write_bytes(content)
    is_whole(tmp_path)


@pytest.mark.parametrize("clean", [True, False])
@pytest.mark.parametrize("lost", [1, 10, 20, 50, 60, 70, 100, 150, 700])
def test_a_disk_that_lied_about_its_cache(tmp_path: Path, lost: int, clean: bool) -> None:
    """The newest bytes of the active segment are gone, whatever fsync said of them."""
    partition = directory_with_records(
        tmp_path, LogDirectories.close if clean else LogDirectories.abandon
    )
    active = max(partition.glob("*.log"))
    kept = max(active.stat().st_size - lost, 0)
    with active.open("r+b") as file:
        file.truncate(kept)
    directory = LogDirectories([tmp_path], CONFIG)
    log = directory.logs[WHERE]
    found = values(log)
    assert found == [b"%d" % number for number in range(len(found))]
    assert len(found) >= int(active.stem)
    for number in range(max(len(found) - 1, 0), COUNT + 1):
        assert produce(log, number).base_offset == number
    directory.close()
    assert list(check_directory(partition)) == []


def checked_bytes(content: bytes) -> list[int]:
    """Where a change can be seen: anywhere but in a leader epoch, which no CRC covers."""
    found = []
    at = 0
    while at < len(content):
        size = BatchHeader.parse(content, at).size
        found += [n for n in range(at, at + size) if not EPOCH_AT <= n - at < EPOCH_AT + 4]
        at += size
    return found


def readable(log: PartitionLog) -> list[int]:
    """The values of whatever can be read with a right CRC, at the offset where it belongs.

    No CRC covers the offset of a batch: a reader sees by itself that one does not follow.
    """
    found: list[int] = []
    at = log.start_offset
    while at < log.end_offset:
        try:
            batches = list(read_batches(read_log(log, at, 1)))
            if batches and batches[0].crc_ok and batches[0].base_offset == at:
                found += [int(record.value or b"") for record in batches[0].records()]
                at = batches[0].last_offset + 1
                continue
        except (ValueError, BrokerError):
            pass
        at += 1
    return found


def test_a_flipped_bit_in_a_segment_is_found_and_contained(tmp_path: Path) -> None:
    chance = random.Random(7)
    whole = tmp_path / "whole"
    name = directory_with_records(whole, LogDirectories.close).name
    for number in range(20):
        path = tmp_path / str(number)
        shutil.copytree(whole, path)
        partition = path / name
        victim = sorted(partition.glob("*.log"))[1]
        content = bytearray(victim.read_bytes())
        content[chance.choice(checked_bytes(bytes(content)))] ^= 1 << chance.randrange(8)
        victim.write_bytes(content)
        assert list(check_directory(partition)), "nothing was found"
        directory = LogDirectories([path], CONFIG)
        log = directory.logs[WHERE]
        segments = sorted(int(each.stem) for each in partition.glob("*.log"))
        found = readable(log)
        outside = [n for n in range(COUNT) if not segments[1] <= n < segments[2]]
        assert set(outside) <= set(found)
        assert found == sorted(set(found))
        append(log, b"100")
        directory.close()
