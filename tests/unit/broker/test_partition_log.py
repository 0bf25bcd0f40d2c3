"""One partition: offsets, segments, duplicates, reads."""

from __future__ import annotations

import resource
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from kprod.broker.log.indexes import TimestampOffset
from kprod.broker.log.log_config import LogConfig
from kprod.broker.log.partition_log import PartitionLog
from kprod.errors import BrokerError
from tests.support.raw_batch import raw_batch
from tests.unit.broker.logs import append, open_log, read_log, records, values


def test_only_what_a_broker_fills_in_is_changed(log: PartitionLog) -> None:
    append(log, b"before")
    sent = raw_batch([b"a", b"b"])
    append(log, b"a", b"b")
    stored = read_log(log, 1, 10_000)
    assert stored == (1).to_bytes(8, "big") + sent[8:12] + bytes(4) + sent[16:]


def test_a_full_segment_is_followed_by_the_next(log: PartitionLog, tmp_path: Path) -> None:
    sent = [b"%04d" % n * 100 for n in range(30)]
    for value in sent:
        append(log, value)
    logs = sorted(tmp_path.glob("*.log"))
    assert len(logs) > 2
    assert all(path.stat().st_size <= 4_000 for path in logs)
    assert values(log) == sent
    snapshots = {path.stem for path in tmp_path.glob("*.snapshot")}
    assert snapshots == {path.stem for path in logs[-2:]}


def test_a_batch_larger_than_a_segment_is_refused(log: PartitionLog) -> None:
    with pytest.raises(BrokerError, match="RECORD_LIST_TOO_LARGE"):
        append(log, b"x" * 4_000)
    assert values(log) == []


def test_a_full_index_ends_a_segment(tmp_path: Path) -> None:
    config = LogConfig(index_interval_bytes=1, segment_index_bytes=36)
    log = open_log(tmp_path, config=config)
    for number in range(8):
        append(log, b"%d" % number)
    assert len(list(tmp_path.glob("*.log"))) > 1
    assert values(log) == [b"%d" % number for number in range(8)]


def test_times_are_found_across_segments(log: PartitionLog) -> None:
    assert log.view().largest_timestamp() is None
    for number in range(30):
        append(log, b"x" * 400, base_timestamp=number * 10, max_timestamp=number * 10)
    for number in range(30):
        assert log.view().find_timestamp(number * 10 - 9) == TimestampOffset(number * 10, number)
    assert log.view().find_timestamp(291) is None
    assert log.view().largest_timestamp() == TimestampOffset(290, 29)


def test_readers_are_not_disturbed_by_rolling(log: PartitionLog) -> None:
    seen: list[int] = []

    def follow() -> None:
        while len(seen) < 200:
            seen[:] = [int(record.value or b"") for record in records(log)]
            assert seen == list(range(len(seen)))

    reader = threading.Thread(target=follow)
    reader.start()
    for number in range(200):
        append(log, b"%04d" % number)
    reader.join()
    assert seen == list(range(200))


@contextmanager
def files_up_to(size: int) -> Iterator[None]:
    """No file of this process can grow beyond ``size`` bytes, as on a full disk."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


@pytest.mark.parametrize("room", [0, 1, 60, 100, 500])
def test_a_disk_that_fills_up_costs_only_what_was_refused(
    log: PartitionLog, tmp_path: Path, room: int
) -> None:
    sent = [b"%d" % n * 200 for n in range(4)]
    for value in sent:
        append(log, value)
    with files_up_to((tmp_path / "00000000000000000000.log").stat().st_size + room):
        for _ in range(2):
            with pytest.raises(BrokerError, match="KAFKA_STORAGE_ERROR"):
                append(log, b"x" * 600)
    assert values(log) == sent
    append(log, b"y")
    assert values(log) == [*sent, b"y"]


def test_an_index_that_finds_no_room_takes_its_batch_along(tmp_path: Path) -> None:
    log = open_log(tmp_path, config=LogConfig(index_interval_bytes=1))
    append(log, b"a")
    with files_up_to(1_000_000):
        for _ in range(2):
            with pytest.raises(BrokerError, match="KAFKA_STORAGE_ERROR"):
                append(log, b"b")
    assert append(log, b"c").base_offset == 1
    assert values(log) == [b"a", b"c"]
    log.abandon()
    log = open_log(tmp_path, 0)
    assert values(log) == [b"a", b"c"]


def test_strict_mode_flushes_and_a_closed_log_refuses(tmp_path: Path) -> None:
    log = open_log(tmp_path, config=LogConfig(flush_messages=1))
    append(log, b"a")
    log.flush()
    log.close()
    log.close()
    with pytest.raises(BrokerError, match="KAFKA_STORAGE_ERROR"):
        append(log, b"b")
