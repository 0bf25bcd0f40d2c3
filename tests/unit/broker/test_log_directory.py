"""The data directory: its lock, its files, and who may open it."""

from __future__ import annotations

import json
import re
import uuid
from pathlib import Path

import pytest

from kprod.broker.log.checkpoint_files import StorageError, read_offsets
from kprod.broker.log.log_cleaner import CLEANER_CHECKPOINT
from kprod.broker.log.log_config import LogConfig
from kprod.broker.log.log_directories import LogDirectories, decode_id, deleted_name, encode_id
from kprod.broker.log.partition_log import PartitionLog
from kprod.broker.records.batch_writer import write_batch
from kprod.records.record_batch import BatchHeader
from kprod.types import TopicPartition
from tests.unit.broker.logs import append, values

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
