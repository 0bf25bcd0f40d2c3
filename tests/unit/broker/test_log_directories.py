"""Data directories: locks, files, and the failure of a single disk."""

from __future__ import annotations

import errno
import os
import re
import shutil
import uuid
from pathlib import Path

import pytest

from kprod.broker.log.checkpoint_files import StorageError
from kprod.broker.log.log_cleaner import LogCleaner
from kprod.broker.log.log_config import LogConfig
from kprod.broker.log.log_directories import LogDirectories, deleted_name
from kprod.broker.log.partition_log import PartitionLog
from kprod.broker.topics import Topics
from kprod.errors import BrokerError
from kprod.types import TopicPartition
from tests.unit.broker.logs import NOW, append, open_directories, read_log, values

# One directory ------------------------------------------------------------------------------------


WHERE = TopicPartition("some-topic.v1", 3)
TOPIC_ID = uuid.UUID("12345678-9abc-def0-1234-56789abcdef0")
TEXTS = {
    "some-topic.v1-3/partition.metadata": "version: 0\ntopic_id: EjRWeJq83vASNFZ4mrze8A\n",
    "some-topic.v1-3/leader-epoch-checkpoint": "0\n1\n0 0\n",
    "recovery-point-offset-checkpoint": "0\n1\nsome-topic.v1 3 2\n",
    "log-start-offset-checkpoint": "0\n0\n",
    ".kafka_cleanshutdown": '{"version": 0, "brokerEpoch": -1}',
}


def with_one_partition(path: Path) -> LogDirectories:
    directory = open_directories(path)
    append(directory.create(WHERE, TOPIC_ID), b"a", b"b")
    return directory


def test_files_have_the_layout_of_kafka(tmp_path: Path) -> None:
    with_one_partition(tmp_path).close()
    assert {path.name for path in (tmp_path / "some-topic.v1-3").iterdir()} == {
        *(f"00000000000000000000.{kind}" for kind in ("index", "log", "timeindex")),
        *("00000000000000000002.snapshot", "leader-epoch-checkpoint", "partition.metadata"),
    }
    assert {name: (tmp_path / name).read_text() for name in TEXTS} == TEXTS
    meta = (tmp_path / "meta.properties").read_text().splitlines()
    names = [line.partition("=")[0] for line in meta]
    assert names == ["version", "node.id", "cluster.id", "directory.id"]


@pytest.mark.parametrize(
    ("name", "original", "replacement", "message"),
    [
        ("meta.properties", "version=1", "version=9", "version 9"),
        ("some-topic.v1-3/partition.metadata", "version: 0", "version: 9", "version 9"),
        ("some-topic.v1-3/partition.metadata", "EjRWeJq83vASNFZ4mrze8A", "x", "'x' is not an id"),
    ],
)
def test_unreadable_metadata_is_refused_and_not_changed(
    tmp_path: Path, name: str, original: str, replacement: str, message: str
) -> None:
    with_one_partition(tmp_path).close()
    path = tmp_path / name
    before = path.read_text()
    path.write_text(before.replace(original, replacement))
    for _ in range(2):
        with pytest.raises(StorageError, match=message):
            open_directories(tmp_path)
    path.write_text(before)
    assert values(open_directories(tmp_path).logs[WHERE]) == [b"a", b"b"]


def directories_in(path: Path) -> set[str]:
    return {each.name for each in path.iterdir() if each.is_dir()}


def test_other_directories_are_not_changed(tmp_path: Path) -> None:
    names = {"notes-1", "other", "not-ours-delete"}
    for name in names:
        (tmp_path / name).mkdir()
    open_directories(tmp_path)
    assert directories_in(tmp_path) == names


@pytest.mark.parametrize("name", [f"{'0f' * 16}-delete", f"some-topic.v1-3.{'0f' * 16}-delete"])
def test_leftovers_of_a_deleted_partition_are_removed_at_start(tmp_path: Path, name: str) -> None:
    with_one_partition(tmp_path).close()
    (tmp_path / "some-topic.v1-3").rename(tmp_path / name)
    assert open_directories(tmp_path).logs == {}
    assert directories_in(tmp_path) == set()


def test_the_files_of_a_deleted_partition_are_deleted_later(tmp_path: Path) -> None:
    directory = open_directories(tmp_path, config=LogConfig(file_delete_delay_ms=60_000))
    append(directory.create(WHERE, TOPIC_ID), b"a")
    directory.remove(WHERE, NOW)
    (waiting,) = tmp_path.glob("*-delete")
    assert (waiting / "00000000000000000000.log").stat().st_size > 0
    append(directory.create(WHERE, uuid.uuid4()), b"another")  # same name
    directory.maintain(NOW + 59_999)
    assert list(tmp_path.glob("*-delete")) == [waiting]
    directory.maintain(NOW + 60_000)
    assert list(tmp_path.glob("*-delete")) == []
    assert values(directory.logs[WHERE]) == [b"another"]


def test_a_partition_may_be_deleted_during_maintenance(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    logs = open_directories(tmp_path, config=LogConfig(segment_bytes=100))
    first, second = (logs.create(TopicPartition("t", number), TOPIC_ID) for number in (0, 1))
    for log in (first, second):
        append_often(log)
    flush = os.fsync

    def delete_meanwhile(descriptor: int) -> None:
        flush(descriptor)
        if second.where in logs.logs:
            logs.remove(second.where, NOW)

    monkeypatch.setattr(os, "fsync", delete_meanwhile)
    logs.maintain(NOW)
    assert list(logs.logs) == [first.where]
    assert not logs.offline


def test_compaction_of_a_deleted_partition_does_not_affect_a_new_one(tmp_path: Path) -> None:
    config = LogConfig(segment_bytes=100, cleanup_policy="compact")
    logs = open_directories(tmp_path, config=config)
    topics = Topics(logs)
    (old,) = topics.create("t", 1).partitions
    append_often(old)
    topics.delete("t", NOW)
    (new,) = topics.create("t", 1).partitions
    append(new, b"kept")
    LogCleaner(tmp_path).clean(old, NOW)
    logs.close()
    assert values(open_directories(tmp_path).logs[new.where]) == [b"kept"]


def test_a_deleted_partition_is_renamed_as_in_kafka() -> None:
    assert re.fullmatch(r"some-topic\.v1-3\.[0-9a-f]{32}-delete", deleted_name(WHERE))
    longest = deleted_name(TopicPartition("t" * 249, 12))
    assert re.fullmatch(r"t{212}-12\.[0-9a-f]{32}-delete", longest), "255 bytes"


# Several directories ------------------------------------------------------------------------------


STORAGE_ERROR = "KAFKA_STORAGE_ERROR"


@pytest.fixture
def disks(tmp_path: Path) -> list[Path]:
    return [tmp_path / name for name in ("one", "two", "three")]


def open_all(disks: list[Path]) -> LogDirectories:
    # Every batch but the first adds an index entry, in a file that a test can remove.
    return open_directories(*disks, config=LogConfig(index_interval_bytes=0))


def with_a_topic(disks: list[Path]) -> tuple[LogDirectories, tuple[PartitionLog, ...]]:
    logs = open_all(disks)
    partitions = Topics(logs).create("t", 6).partitions
    for log in partitions:
        append(log, b"%d" % log.where.partition)
    return logs, partitions


def check_values(logs: LogDirectories) -> list[int]:
    """Check the records of all partitions; returns the offline ones."""
    partitions = Topics(logs).all()[0].partitions
    for log in partitions:
        assert log.offline or values(log) == [b"%d" % log.where.partition]
    return [log.where.partition for log in partitions if log.offline]


def remove_files(disk: Path) -> None:
    """Remove the files under the running broker, like a disk that is pulled out."""
    for directory in disk.iterdir():
        if directory.is_dir():
            shutil.rmtree(directory)


def append_often(log: PartitionLog) -> None:
    for _ in range(3):
        append(log, b"lost")


def refuse_appends(log: PartitionLog) -> None:
    """Append until the loss of the disk is detected."""
    with pytest.raises(BrokerError, match=STORAGE_ERROR):
        append_often(log)


def test_partitions_are_spread_over_disks_and_found_after_a_restart(disks: list[Path]) -> None:
    logs, _ = with_a_topic(disks)
    assert [len(directories_in(disk)) for disk in disks] == [2, 2, 2]
    logs.close()
    assert all((disk / ".kafka_cleanshutdown").exists() for disk in disks)
    again = open_all(disks)
    assert again.cluster_id == logs.cluster_id
    assert check_values(again) == []
    assert all((disk / "meta.properties").exists() for disk in disks)


def test_only_the_partitions_of_a_failed_disk_go_offline(disks: list[Path]) -> None:
    logs, partitions = with_a_topic(disks)
    failed = [log for log in partitions if log.directory.parent == disks[1]]
    remove_files(disks[1])
    refuse_appends(failed[0])
    assert list(logs.offline) == [disks[1]]
    assert [log for log in partitions if log.offline] == failed
    for log in partitions:
        if log in failed:
            refuse_appends(log)
            with pytest.raises(BrokerError, match=STORAGE_ERROR):
                read_log(log, 0, 100)
        else:
            append(log, b"more")
            assert len(values(log)) == 2
    new = {log.directory.parent for log in Topics(logs).create("u", 6).partitions}
    assert new == {disks[0], disks[2]}
    logs.maintain(0)
    logs.close()
    marked = [disk for disk in disks if (disk / ".kafka_cleanshutdown").exists()]
    assert marked == [disks[0], disks[2]]


def test_deleting_records_detects_a_failed_disk(disks: list[Path]) -> None:
    logs, partitions = with_a_topic(disks)
    remove_files(disks[1])
    with pytest.raises(BrokerError, match=STORAGE_ERROR):
        next(log for log in partitions if log.directory.parent == disks[1]).delete_records(-1)
    assert list(logs.offline) == [disks[1]]


def test_a_topic_on_a_failed_disk_cannot_be_deleted(disks: list[Path]) -> None:
    logs, _ = with_a_topic(disks)
    logs.directories[1].fail(OSError(errno.EIO, "broken"))
    topics = Topics(logs)
    with pytest.raises(BrokerError, match=STORAGE_ERROR):
        topics.delete("t", NOW)
    with pytest.raises(BrokerError, match="exists"):
        topics.create("t", 6)
    assert len(check_values(logs)) == 2


def test_too_many_open_files_do_not_take_a_disk_offline(disks: list[Path]) -> None:
    logs, partitions = with_a_topic(disks)
    for directory in logs.directories:
        directory.fail(OSError(errno.EMFILE, "Too many open files"))
    assert not logs.offline
    append(partitions[0], b"more")


def test_a_directory_that_cannot_be_opened_is_offline(disks: list[Path]) -> None:
    logs, _ = with_a_topic(disks)
    logs.close()
    moved = disks[1].with_name("moved")
    disks[1].rename(moved)
    disks[1].write_text("not a directory")
    again = open_all(disks)
    assert list(again.offline) == [disks[1]]
    assert len(check_values(again)) == 2
    again.close()
    disks[1].unlink()
    moved.rename(disks[1])
    assert check_values(open_all(disks)) == []


def test_a_partition_in_two_directories_is_refused(disks: list[Path]) -> None:
    logs, partitions = with_a_topic(disks)
    logs.close()
    directory = partitions[0].directory
    other = next(disk for disk in disks if disk != directory.parent)
    shutil.copytree(directory, other / directory.name)
    with pytest.raises(StorageError, match="keep one"):
        open_all(disks)
    shutil.rmtree(other / directory.name)
    open_all(disks)


def test_directories_of_two_clusters_are_refused(disks: list[Path]) -> None:
    for some in (disks[:1], disks[1:]):
        open_all(some).close()
    with pytest.raises(StorageError, match="belongs to cluster"):
        open_all(disks)


def test_topics_cannot_be_created_without_a_disk(disks: list[Path]) -> None:
    logs, partitions = with_a_topic(disks)
    for disk in disks:
        remove_files(disk)
        refuse_appends(next(log for log in partitions if log.directory.parent == disk))
    with pytest.raises(BrokerError, match=f"{STORAGE_ERROR}.*every data directory is offline"):
        Topics(logs).create("u", 1)
