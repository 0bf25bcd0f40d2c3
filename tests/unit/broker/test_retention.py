"""Retention by age, by size and on request, and compaction."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from kprod.broker.log.log_cleaner import LogCleaner
from kprod.broker.log.log_config import LogConfig
from kprod.broker.log.partition_log import PartitionLog
from kprod.errors import BrokerError
from tests.support.crash_images import crash_images
from tests.unit.broker.logs import NOW, append, open_log, produce, put, records, values

HOUR = 3_600_000
CONFIG = LogConfig(
    segment_bytes=400,
    index_interval_bytes=100,
    segment_index_bytes=1_000,
    file_delete_delay_ms=1_000,
)
COMPACT = replace(CONFIG, cleanup_policy="compact", segment_bytes=1_000)


def pairs(log: PartitionLog) -> list[tuple[int, bytes | None, bytes | None]]:
    """Offset, key and value of every record."""
    return [(record.offset, record.key, record.value) for record in records(log)]


def latest(records: list[tuple[int, bytes | None, bytes | None]]) -> dict[bytes | None, int]:
    """The last offset of each key."""
    return {key: offset for offset, key, _ in records}


def bases(log: PartitionLog) -> list[int]:
    return [segment.base_offset for segment in log.segments]


def filled(path: Path, config: LogConfig = CONFIG, count: int = 40) -> PartitionLog:
    """A log with records a minute apart, the last one now."""
    log = open_log(path, config=config)
    for number in range(count):
        put(log, (b"%d" % number, b"x" * 20), at=NOW - (count - 1 - number) * 60_000)
    return log


def test_old_segments_are_removed_and_their_files_deleted_later(tmp_path: Path) -> None:
    log = filled(tmp_path, replace(CONFIG, retention_ms=HOUR // 4))
    before = len(log.segments)
    deleted = log.delete_old_segments(NOW)
    assert 0 < deleted < before
    assert len(log.segments) == before - deleted
    assert log.start_offset == bases(log)[0]
    oldest_kept = log.segments[0].largest_timestamp.timestamp
    assert NOW - oldest_kept <= HOUR // 4
    log.purge(NOW)
    assert len(list(tmp_path.glob("*.log.deleted"))) == deleted
    log.purge(NOW + 1_000)
    assert not list(tmp_path.glob("*.deleted"))


def test_the_active_segment_expires_by_age_as_well(tmp_path: Path) -> None:
    log = filled(tmp_path, replace(CONFIG, retention_ms=HOUR))
    log.delete_old_segments(NOW + 2 * HOUR)
    assert (log.start_offset, log.end_offset, bases(log)) == (40, 40, [40])
    append(log, b"next")
    log.close()
    again = open_log(tmp_path, config=CONFIG)
    assert (again.start_offset, again.end_offset) == (40, 41)


def test_size_exceeds_the_limit_by_less_than_a_segment(tmp_path: Path) -> None:
    log = filled(tmp_path, replace(CONFIG, retention_bytes=1_200))
    log.delete_old_segments(NOW)
    assert 1_200 <= sum(s.size for s in log.segments) < 1_200 + CONFIG.segment_bytes
    log.reconfigure(replace(CONFIG, retention_bytes=0))
    log.delete_old_segments(NOW)
    assert len(log.segments) == 1
    assert values(log)


def test_records_before_an_offset_are_deleted_on_request(tmp_path: Path) -> None:
    log = filled(tmp_path)
    assert log.delete_records(17) == 17
    assert log.delete_records(3) == 17
    with pytest.raises(BrokerError, match="OFFSET_OUT_OF_RANGE"):
        log.delete_records(41)
    log.delete_old_segments(NOW)
    assert bases(log)[0] <= 17 < bases(log)[1]
    assert [offset for offset, _, _ in pairs(log)] == list(range(17, 40))
    assert log.delete_records(-1) == 40


def test_a_segment_is_rolled_by_record_timestamps(tmp_path: Path) -> None:
    log = open_log(tmp_path, config=LogConfig(segment_ms=HOUR))
    for number in range(5):
        put(log, (b"k", b"v"), at=NOW + number * HOUR // 2)
    assert bases(log) == [0, 3]


def test_compaction_keeps_the_last_record_of_each_key(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    log = open_log(tmp_path, config=COMPACT)
    for number in range(200):
        put(log, (b"%d" % (number % 7), b"%d" % number))
    active = bases(log)[-1]
    assert LogCleaner(tmp_path).clean_if_dirty(log, NOW)
    kept = pairs(log)
    last = {number % 7: number for number in range(active)}
    assert [offset for offset, _, _ in kept] == [*sorted(last.values()), *range(active, 200)]
    assert not LogCleaner(tmp_path).clean_if_dirty(log, NOW)
    LogCleaner(tmp_path).clean(log, NOW)
    assert len(log.segments) == 2
    assert pairs(log) == kept
    assert not caplog.messages, "missing offsets are not reported as damage"


def test_dirty_records_are_compacted_after_the_maximum_lag(tmp_path: Path) -> None:
    log = open_log(tmp_path, config=replace(COMPACT, max_compaction_lag_ms=HOUR))
    cleaner = LogCleaner(tmp_path)
    for number in range(50):
        put(log, (b"%d" % number, b"x"))
    assert cleaner.clean_if_dirty(log, NOW)
    put(log, (b"0", b"y"), at=NOW + HOUR + 1)
    assert bases(log)[-1] == 50
    assert not cleaner.clean_if_dirty(log, NOW + HOUR)
    assert cleaner.clean_if_dirty(log, NOW + HOUR + 1)


def test_a_tombstone_is_kept_for_delete_retention_ms(tmp_path: Path) -> None:
    log = open_log(tmp_path, config=replace(COMPACT, delete_retention_ms=HOUR))
    put(log, (b"a", b"1"), (b"b", b"2"))
    put(log, (b"a", None))
    while len(log.segments) < 2:
        put(log, (b"filler", b"x" * 50))
    cleaner = LogCleaner(tmp_path)
    for now, tombstone in ((NOW, True), (NOW + HOUR - 1, True), (NOW + HOUR, False)):
        cleaner.clean(log, now)
        kept = {key: value for _, key, value in pairs(log)}
        assert kept[b"b"] == b"2"
        assert (b"a" in kept, kept.get(b"a")) == (tombstone, None)


def test_the_last_sequence_of_a_producer_survives_compaction(tmp_path: Path) -> None:
    log = open_log(tmp_path, config=COMPACT)
    produce(log, 0)
    while len(log.segments) < 2:
        put(log, (b"k", b"x" * 50))
    LogCleaner(tmp_path).clean(log, NOW)
    log.close()
    again = open_log(tmp_path, recovery_point=0, config=COMPACT)
    assert produce(again, 0).base_offset == 0


def test_a_crash_during_compaction_or_retention_loses_nothing(tmp_path: Path) -> None:
    """Kafka's rules for ``.cleaned``, ``.swap`` and ``.deleted``: the old or the new state."""
    data = tmp_path / "data"
    data.mkdir()
    log = open_log(data, config=COMPACT)
    for number in range(60):
        put(log, (b"%d" % (number % 3), b"%d" % number))
    before = pairs(log)
    with crash_images(data, tmp_path / "images") as images:
        LogCleaner(tmp_path).clean(log, NOW)
        log.purge(NOW + 2_000)
        compacted = pairs(log)
        log.delete_records(log.segments[-1].base_offset)
        log.delete_old_segments(NOW)
        log.purge(NOW + 2_000)
    rest = pairs(log)
    log.abandon()
    seen = []
    for image in images:
        again = open_log(image, recovery_point=0, config=COMPACT)
        found = pairs(again)
        assert again.end_offset == 60
        if set(found) >= set(compacted):
            assert set(found) <= set(before)
            assert latest(found) == latest(before)
        else:
            assert found == compacted[len(compacted) - len(found) :]
            assert set(found) >= set(rest)
        seen.append(found)
        again.close()
    assert all(state in seen for state in (before, compacted))


def test_recovery_reads_only_the_last_segment(tmp_path: Path) -> None:
    """Rolled segments are flushed in the background and trusted after a crash."""
    log = filled(tmp_path)
    assert log.recovery_point == 0
    log.flush_rolled()
    active = log.segments[-1].base_offset
    assert log.recovery_point == active > 0
    log.abandon()
    first = tmp_path / "00000000000000000000.log"
    content = bytearray(first.read_bytes())
    content[70] ^= 1
    first.write_bytes(content)
    again = open_log(tmp_path, recovery_point=active, config=CONFIG)
    assert again.end_offset == 40
    again.abandon()
    again = open_log(tmp_path, recovery_point=0, config=CONFIG)
    assert again.end_offset == 0
