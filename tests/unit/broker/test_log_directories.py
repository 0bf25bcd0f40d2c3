"""Data directories: their locks, their files, and a disk that fails takes only its own."""

from __future__ import annotations

import errno
import json
import os
import re
import shutil
import uuid
from pathlib import Path

import pytest

from kprod.broker.log.checkpoint_files import StorageError, read_offsets
from kprod.broker.log.log_cleaner import CLEANER_CHECKPOINT, LogCleaner
from kprod.broker.log.log_config import LogConfig
from kprod.broker.log.log_directories import LogDirectories, decode_id, deleted_name, encode_id
from kprod.broker.log.partition_log import PartitionLog
from kprod.broker.records.batch_writer import write_batch
from kprod.broker.topics import Topics
from kprod.errors import BrokerError
from kprod.records.record_batch import BatchHeader
from kprod.types import TopicPartition
from tests.unit.broker.logs import append, read_log, values

# One directory: its lock, its files, and who may open it ------------------------------------------


WHERE = TopicPartition("some-topic.v1", 3)
NOW = 1_700_000_000_000
TOPIC_ID = uuid.UUID("12345678-9abc-def0-1234-56789abcdef0")


def open_directory(path: Path) -> LogDirectories:
    return LogDirectories([path], LogConfig())


def with_one_partition(path: Path) -> LogDirectories:
    directory = open_directory(path)
    append(directory.create(WHERE, TOPIC_ID), b"a", b"b")
    return directory


def test_the_layout_is_kafkas(tmp_path: Path) -> None:
    directory = with_one_partition(tmp_path)
    directory.close()
    partition = tmp_path / "some-topic.v1-3"
    assert {path.name for path in partition.iterdir()} == {
        "00000000000000000000.index",
        "00000000000000000000.log",
        "00000000000000000000.timeindex",
        "00000000000000000002.snapshot",
        "leader-epoch-checkpoint",
        "partition.metadata",
    }
    assert (partition / "partition.metadata").read_text() == (
        f"version: 0\ntopic_id: {encode_id(TOPIC_ID)}\n"
    )
    assert (partition / "leader-epoch-checkpoint").read_text() == "0\n1\n0 0\n"
    points = tmp_path / "recovery-point-offset-checkpoint"
    assert points.read_text() == "0\n1\nsome-topic.v1 3 2\n"
    assert (tmp_path / "log-start-offset-checkpoint").read_text() == "0\n0\n"
    assert json.loads((tmp_path / ".kafka_cleanshutdown").read_text())["version"] == 0
    meta = (tmp_path / "meta.properties").read_text().splitlines()
    assert [line.partition("=")[0] for line in meta] == [
        "version",
        "node.id",
        "cluster.id",
        "directory.id",
    ]


def test_a_log_that_was_cut_is_compacted_anew(tmp_path: Path) -> None:
    """The records that come then have offsets that were clean once."""
    config = LogConfig(
        cleanup_policy="compact",
        segment_bytes=1_000,
        index_interval_bytes=100,
        segment_index_bytes=1_000,
        file_delete_delay_ms=0,
    )
    directory = LogDirectories([tmp_path], config)
    log = directory.create(WHERE, TOPIC_ID)
    put_keys(log, 100)
    directory.directories[0].maintain(NOW)
    assert read_offsets(tmp_path / CLEANER_CHECKPOINT)[WHERE] > 50
    directory.abandon()
    for path in log.directory.glob("*.*"):
        if path.suffix in (".log", ".index", ".timeindex", ".snapshot"):
            path.unlink()

    again = LogDirectories([tmp_path], config)
    log = again.logs[WHERE]
    assert log.end_offset == 0
    put_keys(log, 50)
    again.directories[0].maintain(NOW)
    kept = [record.key for record in log.records() if record.offset < log.segments[-1].base_offset]
    assert len(kept) == len(set(kept)) == 5
    again.close()


def put_keys(log: PartitionLog, count: int) -> None:
    """Records with five keys."""
    for number in range(count):
        data = write_batch([(b"%d" % (number % 5), b"v")], NOW)
        log.append(BatchHeader.parse(data), data)


@pytest.mark.parametrize("name", ["meta.properties", "some-topic.v1-3/partition.metadata"])
def test_a_future_version_is_refused_and_left_alone(tmp_path: Path, name: str) -> None:
    with_one_partition(tmp_path).close()
    path = tmp_path / name
    before = path.read_text()
    path.write_text(before.replace("version=1", "version=9").replace("version: 0", "version: 9"))
    for _ in range(2):
        with pytest.raises(StorageError, match="version 9"):
            open_directory(tmp_path)
    path.write_text(before)
    directory = open_directory(tmp_path)
    assert values(directory.logs[WHERE]) == [b"a", b"b"]
    directory.close()


def test_directories_that_are_no_partitions_are_left_alone(tmp_path: Path) -> None:
    (tmp_path / "notes-1").mkdir(parents=True)
    (tmp_path / "other").mkdir()
    (tmp_path / "not-ours-delete").mkdir()
    open_directory(tmp_path).close()
    left = {path.name for path in tmp_path.iterdir() if path.is_dir()}
    assert left == {"notes-1", "other", "not-ours-delete"}


@pytest.mark.parametrize("name", [f"{'0f' * 16}-delete", f"some-topic.v1-3.{'0f' * 16}-delete"])
def test_what_a_crash_left_of_a_deleted_partition_goes(tmp_path: Path, name: str) -> None:
    with_one_partition(tmp_path).close()
    (tmp_path / "some-topic.v1-3").rename(tmp_path / name)
    directory = open_directory(tmp_path)
    assert directory.logs == {}
    assert [path for path in tmp_path.iterdir() if path.is_dir()] == []
    directory.close()


def doomed(path: Path) -> list[Path]:
    return list(path.glob("*-delete"))


def test_the_files_of_a_deleted_partition_stay_for_a_while(tmp_path: Path) -> None:
    config = LogConfig(file_delete_delay_ms=60_000)
    directory = LogDirectories([tmp_path], config)
    append(directory.create(WHERE, TOPIC_ID), b"a")
    directory.remove(WHERE, NOW)
    (waiting,) = doomed(tmp_path)
    assert (waiting / "00000000000000000000.log").stat().st_size > 0
    append(directory.create(WHERE, uuid.uuid4()), b"another")  # the name is free
    directory.maintain(NOW + 59_999)
    assert doomed(tmp_path) == [waiting]
    directory.maintain(NOW + 60_000)
    assert doomed(tmp_path) == []
    assert values(directory.logs[WHERE]) == [b"another"]
    directory.close()


def test_a_partition_that_is_deleted_during_maintenance(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    logs = LogDirectories([tmp_path], LogConfig(segment_bytes=100))
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
    logs.close()


def test_compaction_of_a_deleted_partition_leaves_its_successor_alone(tmp_path: Path) -> None:
    logs = LogDirectories([tmp_path], LogConfig(segment_bytes=100, cleanup_policy="compact"))
    topics = Topics(logs)
    (old,) = topics.create("t", 1).partitions
    append_often(old)
    topics.delete("t", NOW)
    (new,) = topics.create("t", 1).partitions
    append(new, b"kept")
    LogCleaner(tmp_path).clean(old, NOW)
    logs.close()
    again = open_directory(tmp_path)
    assert values(again.logs[new.where]) == [b"kept"]
    again.close()


def test_a_deleted_partition_has_the_name_that_kafka_gives_it() -> None:
    assert re.fullmatch(r"some-topic\.v1-3\.[0-9a-f]{32}-delete", deleted_name(WHERE))
    longest = deleted_name(TopicPartition("t" * 249, 12))
    assert len(longest) == 255
    assert re.fullmatch(r"t{212}-12\.[0-9a-f]{32}-delete", longest)


def test_ids_have_22_characters() -> None:
    assert encode_id(TOPIC_ID) == "EjRWeJq83vASNFZ4mrze8A"
    assert decode_id("EjRWeJq83vASNFZ4mrze8A") == TOPIC_ID
    with pytest.raises(StorageError):
        decode_id("short")


# Several: partitions are spread, and a disk that fails takes only its own -------------------------


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


def test_deleting_records_notices_a_disk_that_fails(disks: list[Path]) -> None:
    logs, partitions = with_a_topic(disks)
    lose(disks[1])
    with pytest.raises(BrokerError, match=STORAGE_ERROR):
        next(log for log in partitions if log.directory.parent == disks[1]).delete_records(-1)
    assert list(logs.offline) == [disks[1]]
    logs.close()


def test_new_partitions_avoid_a_disk_that_failed(disks: list[Path]) -> None:
    logs, partitions = with_a_topic(disks)
    lose(disks[1])
    refuse_appends(next(log for log in partitions if log.directory.parent == disks[1]))
    found = {log.directory.parent for log in Topics(logs).create("u", 6).partitions}
    assert found == {disks[0], disks[2]}
    logs.close()


def test_a_topic_on_a_disk_that_failed_stays(disks: list[Path]) -> None:
    logs, partitions = with_a_topic(disks)
    logs.directories[1].fail(OSError(errno.EIO, "broken"))
    topics = Topics(logs)
    with pytest.raises(BrokerError, match=STORAGE_ERROR):
        topics.delete("t", NOW)
    with pytest.raises(BrokerError, match="exists"):
        topics.create("t", 6)
    for log in partitions:
        assert log.offline or values(log) == [b"%d" % log.where.partition]
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
