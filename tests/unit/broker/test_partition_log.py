"""A partition's log: offsets, segments, indexes, reads and recovery."""

from __future__ import annotations

import os
import resource
import struct
import tempfile
import threading
from bisect import bisect_right
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kprod.broker.log.indexes import OffsetIndex, TimestampOffset
from kprod.broker.log.log_config import LogConfig
from kprod.broker.log.partition_log import PartitionLog
from kprod.broker.log.segment import LogSegment
from kprod.broker.records.file_slice import in_memory
from kprod.errors import BrokerError
from kprod.records.record_batch import BatchHeader, read_batches
from tests.support.raw_batch import raw_batch, raw_record
from tests.unit.broker.logs import SMALL, append, open_log, produce, read_log, records, values


def test_an_append_changes_only_offset_and_leader_epoch(log: PartitionLog) -> None:
    append(log, b"before")
    sent = raw_batch([b"a", b"b"])
    append(log, b"a", b"b")
    stored = read_log(log, 1, 10_000)
    assert stored == (1).to_bytes(8, "big") + sent[8:12] + bytes(4) + sent[16:]


@pytest.mark.skipif(not hasattr(os, "fdatasync"), reason="the system has no fdatasync")
def test_a_flush_includes_the_previous_segment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    flushed, flush = set(), os.fdatasync

    def record_flush(descriptor: int) -> None:
        flushed.add(os.fstat(descriptor).st_ino)
        flush(descriptor)

    monkeypatch.setattr(os, "fdatasync", record_flush)
    log = open_log(tmp_path, config=LogConfig(flush_messages=2, segment_bytes=100))
    append(log)
    append(log)
    assert len(log.segments) == 2
    assert flushed == {segment.records.path.stat().st_ino for segment in log.segments}


@pytest.mark.parametrize(
    "config",
    [SMALL, LogConfig(index_interval_bytes=1, segment_index_bytes=36)],
    ids=["bytes", "index"],
)
def test_a_full_segment_is_followed_by_the_next(tmp_path: Path, config: LogConfig) -> None:
    log = open_log(tmp_path, config=config)
    sent = [b"%04d" % n * 100 for n in range(30)]
    for value in sent:
        append(log, value)
    logs = sorted(tmp_path.glob("*.log"))
    assert len(logs) > 2
    assert all(path.stat().st_size <= config.segment_bytes for path in logs)
    assert values(log) == sent
    snapshots = {path.stem for path in tmp_path.glob("*.snapshot")}
    assert snapshots == {path.stem for path in logs[-2:]}


def test_a_batch_larger_than_a_segment_is_refused(log: PartitionLog) -> None:
    with pytest.raises(BrokerError, match="RECORD_LIST_TOO_LARGE"):
        append(log, b"x" * 4_000)
    assert values(log) == []


def test_timestamps_are_found_across_segments(log: PartitionLog) -> None:
    assert log.view().largest_timestamp() is None
    for number in range(30):
        append(log, b"x" * 400, base_timestamp=number * 10, max_timestamp=number * 10)
    for number in range(30):
        assert log.view().find_timestamp(number * 10 - 9) == TimestampOffset(number * 10, number)
    assert log.view().find_timestamp(291) is None
    assert log.view().largest_timestamp() == TimestampOffset(290, 29)


def test_readers_see_all_records_while_segments_are_rolled(log: PartitionLog) -> None:
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
def test_a_full_disk_loses_only_refused_batches(
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


def test_a_batch_is_refused_if_its_index_entry_cannot_be_written(tmp_path: Path) -> None:
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


def test_a_closed_log_refuses_appends(tmp_path: Path) -> None:
    log = open_log(tmp_path, config=LogConfig(flush_messages=1))
    append(log, b"a")
    log.flush()
    log.close()
    log.close()
    with pytest.raises(BrokerError, match="KAFKA_STORAGE_ERROR"):
        append(log, b"b")


# Segments -----------------------------------------------------------------------------------------


BASE = 1_000
PER_BATCH = 3


def thousand_bytes(number: int) -> bytes:
    """Batch ``number``: three records in exactly 1,000 bytes, a second after the previous one."""
    filler = b"x" * 300
    payload = raw_record(0, filler) + raw_record(1, filler)
    payload += raw_record(2, b"y" * (1000 - 61 - len(payload) - 9))
    return raw_batch(
        [b""] * PER_BATCH,
        payload=payload,
        base_offset=BASE + PER_BATCH * number,
        base_timestamp=number * 1000,
        max_timestamp=number * 1000,
    )


def fill(segment: LogSegment, batches: range) -> None:
    for number in batches:
        data = thousand_bytes(number)
        assert len(data) == 1000
        segment.append(BatchHeader.parse(data), [data])


@pytest.fixture
def segment(tmp_path: Path) -> Iterator[LogSegment]:
    segment = LogSegment(tmp_path, BASE, LogConfig())
    segment.open_for_append()
    yield segment
    segment.close()


def offsets_in(data: bytes) -> list[int]:
    return [batch.base_offset for batch in read_batches(data)]


def test_an_index_entry_is_added_every_4096_bytes(segment: LogSegment) -> None:
    fill(segment, range(5))
    assert segment.offset_index.count == 0
    fill(segment, range(5, 6))
    assert segment.offset_index[0] == (17, 5000)
    assert segment.time_index[0] == (5000, 17)
    fill(segment, range(6, 11))
    assert segment.offset_index.count == 2
    assert segment.offset_index[1] == (32, 10_000)


def test_a_timestamp_lookup_finds_the_first_record_that_reaches_it(segment: LogSegment) -> None:
    fill(segment, range(40))
    for number in (0, 1, 17, 39):
        found = segment.find_timestamp(number * 1000 - 500, 0, segment.size)
        assert found == TimestampOffset(number * 1000, BASE + PER_BATCH * number)
        assert segment.find_timestamp(number * 1000, 0, segment.size) == found
    assert segment.find_timestamp(39_001, 0, segment.size) is None
    assert segment.find_timestamp(0, BASE + 5, segment.size) == TimestampOffset(1000, BASE + 5)
    assert segment.find_timestamp(5000, 0, 5000) is None


@pytest.mark.parametrize("entry", [(17, 5001), (17, 500_000), (17, -5), (99, 5000), (2, 5000)])
def test_a_damaged_index_does_not_affect_reads(segment: LogSegment, entry: tuple[int, int]) -> None:
    fill(segment, range(8))
    segment.seal()
    segment.offset_index.path.write_bytes(struct.pack(">ii", *entry))
    assert segment.intact_end() is None
    for offset in range(BASE, BASE + 24):
        data = in_memory([segment.locate(offset, 1000, segment.size, whole_first=False)])
        assert offsets_in(data) == [offset - (offset - BASE) % PER_BATCH]


@pytest.mark.parametrize("at", [8, 16, 17, 21, 30, 60, 500, 999])
def test_recovery_ends_at_the_first_invalid_batch(segment: LogSegment, at: int) -> None:
    fill(segment, range(8))
    path = segment.records.path
    content = bytearray(path.read_bytes())
    content[3000 + at] ^= 0x40
    path.write_bytes(content)
    assert segment.recover() == 5000
    assert segment.intact_end() == BASE + 9


def test_a_closed_segment_reads_as_empty(segment: LogSegment) -> None:
    fill(segment, range(8))
    segment.close()
    assert in_memory([segment.locate(BASE + 20, 1000, 8000, whole_first=True)]) == b""


# Indexes ------------------------------------------------------------------------------------------


INDEX_BASE = 5_000
increasing = st.lists(st.tuples(st.integers(1, 1000), st.integers(1, 5000)), max_size=60).map(
    lambda steps: [
        (INDEX_BASE + sum(s[0] for s in steps[: n + 1]), sum(s[1] for s in steps[: n + 1]))
        for n in range(len(steps))
    ]
)


@given(increasing, st.integers(INDEX_BASE - 10, INDEX_BASE + 62_000), st.integers(0, 310_000))
def test_an_index_lookup_finds_the_nearest_entries(
    entries: list[tuple[int, int]], offset: int, position: int
) -> None:
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory, "00000000000000005000.index")
        index = OffsetIndex(path, INDEX_BASE)
        index.grow(8 * len(entries) + 7)
        for entry in entries:
            assert not index.full
            index.append(*entry)
        assert index.full
        index.trim()
        assert path.read_bytes() == b"".join(
            struct.pack(">ii", o - INDEX_BASE, p) for o, p in entries
        )
        again = OffsetIndex(path, INDEX_BASE)
        assert again.sane
        for each in (index, again):
            for target, limit in ((offset, position), *entries):
                before = bisect_right([found for found, _ in entries], target)
                assert each.lookup(target) == (entries[before - 1][1] if before else 0)
                at_most = [found for found, at in entries if at <= limit]
                assert each.offset_before(limit) == (at_most[-1] if at_most else INDEX_BASE)
                behind = [found for found, at in entries if at >= limit]
                assert each.offset_behind(limit) == (behind[0] if behind else None)
            each.close()


# Reopened after a clean stop, a crash or damage ---------------------------------------------------


CRASHED = 0


def filled(directory: Path) -> list[bytes]:
    """Write a log of several segments that ends with a crash; returns its values."""
    log = open_log(directory)
    sent = [b"%04d" % number * 100 for number in range(25)]
    for value in sent:
        append(log, value)
    log.abandon()
    return sent


def recovered(directory: Path) -> list[bytes | None]:
    log = open_log(directory, CRASHED)
    found = values(log)
    append(log, b"one more")
    assert values(log) == [*found, b"one more"]
    return found


def test_recovery_truncates_the_log_at_an_invalid_batch(tmp_path: Path) -> None:
    sent = filled(tmp_path)
    second = sorted(tmp_path.glob("*.log"))[1]
    content = bytearray(second.read_bytes())
    content[-1] ^= 1
    second.write_bytes(content)
    found = recovered(tmp_path)
    third = int(sorted(tmp_path.glob("*.log"))[1].stem)
    assert found == sent[: len(found)]
    assert 0 < third <= len(found) < len(sent)


def test_leftover_files_are_removed(tmp_path: Path) -> None:
    sent = filled(tmp_path)
    for name in ("00000000000000000099.index", "00000000000000000000.log.deleted", "x.cleaned"):
        (tmp_path / name).write_bytes(b"?")
    assert recovered(tmp_path) == sent
    assert not list(tmp_path.glob("*9.index")) + list(tmp_path.glob("*.deleted"))


OLD_BATCH = {"producer_id": 8, "producer_epoch": 0, "base_sequence": 0}


@pytest.mark.parametrize("recovery_point", [None, CRASHED], ids=["clean", "crashed"])
def test_producer_sequences_are_known_after_a_stop_or_a_crash(
    log: PartitionLog, recovery_point: int | None
) -> None:
    append(log, b"long ago", **OLD_BATCH)
    for number in range(100):
        produce(log, number)
    log.close() if recovery_point is None else log.abandon()
    log = open_log(log.directory, recovery_point)
    assert append(log, b"long ago", **OLD_BATCH).base_offset == 0
    for number in range(95, 100):
        assert produce(log, number).base_offset == 1 + number
    for number in (94, 101):
        with pytest.raises(BrokerError, match="OUT_OF_ORDER"):
            produce(log, number)
    assert produce(log, 100).base_offset == 101
