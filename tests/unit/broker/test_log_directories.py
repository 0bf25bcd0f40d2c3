"""Several data directories: partitions are spread, and a disk that fails takes only its own."""

from __future__ import annotations

import errno
import shutil
import uuid
from pathlib import Path

import pytest

from kprod.broker.log.checkpoint_files import StorageError
from kprod.broker.log.log_config import LogConfig
from kprod.broker.log.log_directories import LogDirectories
from kprod.broker.log.partition_log import PartitionLog
from kprod.broker.topics import Topics
from kprod.errors import BrokerError
from kprod.types import TopicPartition
from tests.unit.broker.logs import append, read_log, values

STORAGE_ERROR = "KAFKA_STORAGE_ERROR"


@pytest.fixture
def disks(tmp_path: Path) -> list[Path]:
    return [tmp_path / name for name in ("one", "two", "three")]


def open_all(disks: list[Path]) -> LogDirectories:
    # Every batch but the first has an index entry: that goes to a file which can be taken away.
    return LogDirectories(disks, LogConfig(index_interval_bytes=0))


def with_a_topic(disks: list[Path]) -> tuple[LogDirectories, tuple[PartitionLog, ...]]:
    logs = open_all(disks)
    partitions = Topics(logs).create("t", 6).partitions
    for log in partitions:
        append(log, b"%d" % log.where.partition)
    return logs, partitions


def lose(disk: Path) -> None:
    """Take the files away under the broker, as a disk does that is pulled out."""
    for directory in disk.iterdir():
        if directory.is_dir():
            shutil.rmtree(directory)


def append_often(log: PartitionLog) -> None:
    for _ in range(3):
        append(log, b"lost")


def refuse_appends(log: PartitionLog) -> None:
    """Append until the disk is noticed to be gone."""
    with pytest.raises(BrokerError, match=STORAGE_ERROR):
        append_often(log)


def test_partitions_are_spread_and_found_again(disks: list[Path]) -> None:
    logs, _ = with_a_topic(disks)
    spread = [len([each for each in disk.iterdir() if each.is_dir()]) for disk in disks]
    assert spread == [2, 2, 2]
    logs.close()
    again = open_all(disks)
    assert again.cluster_id == logs.cluster_id
    for log in Topics(again).all()[0].partitions:
        assert values(log) == [b"%d" % log.where.partition]
    assert all((disk / "meta.properties").exists() for disk in disks)
    again.close()
    assert all((disk / ".kafka_cleanshutdown").exists() for disk in disks)


def test_a_disk_that_fails_takes_only_its_partitions_along(disks: list[Path]) -> None:
    logs, partitions = with_a_topic(disks)
    ill = [log for log in partitions if log.directory.parent == disks[1]]
    lose(disks[1])
    refuse_appends(ill[0])
    assert list(logs.offline) == [disks[1]]
    assert [log for log in partitions if log.offline] == ill
    for log in partitions:
        if log in ill:
            refuse_appends(log)
            with pytest.raises(BrokerError, match=STORAGE_ERROR):
                read_log(log, 0, 100)
        else:
            append(log, b"more")
            assert len(values(log)) == 2
    logs.maintain(0)
    logs.close()
    marked = [disk for disk in disks if (disk / ".kafka_cleanshutdown").exists()]
    assert marked == [disks[0], disks[2]]


def test_new_partitions_avoid_a_disk_that_failed(disks: list[Path]) -> None:
    logs, partitions = with_a_topic(disks)
    lose(disks[1])
    refuse_appends(next(log for log in partitions if log.directory.parent == disks[1]))
    found = {log.directory.parent for log in Topics(logs).create("u", 6).partitions}
    assert found == {disks[0], disks[2]}
    logs.close()


def test_an_append_that_failed_left_nothing(disks: list[Path]) -> None:
    logs, partitions = with_a_topic(disks)
    log = partitions[0]
    index = log.segments[-1].offset_index.path
    kept = index.read_bytes()
    index.unlink()
    refuse_appends(log)
    index.write_bytes(kept)
    logs.abandon()
    again = open_all(disks)
    mended = again.logs[log.where]
    assert values(mended) == [b"0"]
    assert append(mended, b"next").base_offset == 1
    again.close()


def test_the_limits_of_the_process_are_not_the_disks_fault(disks: list[Path]) -> None:
    logs, partitions = with_a_topic(disks)
    for directory in logs.directories:
        directory.fail(OSError(errno.EMFILE, "Too many open files"))
    assert not logs.offline
    append(partitions[0], b"more")
    logs.close()


def test_a_directory_that_cannot_be_opened_is_left_out(disks: list[Path]) -> None:
    logs, _ = with_a_topic(disks)
    logs.close()
    aside = disks[1].with_name("aside")
    disks[1].rename(aside)
    disks[1].write_text("not a directory")
    again = open_all(disks)
    assert list(again.offline) == [disks[1]]
    partitions = Topics(again).all()[0].partitions
    lost = [log.where.partition for log in partitions if log.offline]
    assert len(lost) == 2
    for log in partitions:
        if not log.offline:
            assert values(log) == [b"%d" % log.where.partition]
    again.close()
    disks[1].unlink()
    aside.rename(disks[1])
    whole = open_all(disks)
    assert [values(log) for log in Topics(whole).all()[0].partitions] == [
        [b"%d" % number] for number in range(6)
    ]
    whole.close()


def test_a_partition_in_two_places_is_refused(disks: list[Path]) -> None:
    logs, partitions = with_a_topic(disks)
    logs.close()
    directory = partitions[0].directory
    other = next(disk for disk in disks if disk != directory.parent)
    shutil.copytree(directory, other / directory.name)
    with pytest.raises(StorageError, match="keep one"):
        open_all(disks)
    shutil.rmtree(other / directory.name)
    open_all(disks).close()


def test_directories_of_two_clusters_do_not_mix(disks: list[Path]) -> None:
    open_all(disks[:1]).close()
    open_all(disks[1:]).close()
    with pytest.raises(StorageError, match="belongs to cluster"):
        open_all(disks)


def test_no_disk_is_left(disks: list[Path]) -> None:
    logs, partitions = with_a_topic(disks)
    for disk in disks:
        lose(disk)
        refuse_appends(next(log for log in partitions if log.directory.parent == disk))
    with pytest.raises(OSError, match="every data directory is offline"):
        logs.create(TopicPartition("u", 0), uuid.uuid4())
    logs.close()
