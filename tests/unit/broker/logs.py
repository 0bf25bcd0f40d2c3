"""Partition logs for tests: open, append, and reopen as after a stop or a crash."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from kprod.broker.log.local_log import Appended
from kprod.broker.log.log_config import LogConfig
from kprod.broker.log.log_directories import LogDirectories
from kprod.broker.log.log_loader import LogLoader
from kprod.broker.log.partition_log import PartitionLog
from kprod.broker.records.batch_writer import write_batch
from kprod.broker.records.file_slice import in_memory
from kprod.records.legacy_message import read_sets
from kprod.records.record_batch import BatchHeader, StoredRecord
from kprod.types import TopicPartition
from tests.support.raw_batch import raw_batch

opened: list[PartitionLog | LogDirectories] = []
"""Closed after the test, by ``conftest.py``."""
NOW = 1_700_000_000_000
SMALL = LogConfig(segment_bytes=4_000, index_interval_bytes=300, segment_index_bytes=1_000)


def open_log(
    directory: Path, recovery_point: int | None = None, config: LogConfig = SMALL
) -> PartitionLog:
    """``recovery_point`` is None after a clean shutdown and 0 after a crash."""
    where = TopicPartition("t", 0)
    loader = LogLoader(where, directory, config, recovery_point=recovery_point, start_offset=0)
    log = loader.load()
    opened.append(log)
    return log


def open_directories(*paths: Path, config: LogConfig | None = None) -> LogDirectories:
    directories = LogDirectories(paths, config or LogConfig())
    opened.append(directories)
    return directories


def append(log: PartitionLog, *values: bytes, **changes: Any) -> Appended:
    """Append one batch."""
    data = raw_batch(values or (b"value",), **changes)
    return log.append(BatchHeader.parse(data), data)


def put(log: PartitionLog, *pairs: tuple[bytes | None, bytes | None], at: int = NOW) -> None:
    """Append one batch of keys and values."""
    data = write_batch(pairs, at)
    log.append(BatchHeader.parse(data), data)


def produce(log: PartitionLog, first: int, count: int = 1, **changes: Any) -> Appended:
    """Append one batch of an idempotent producer, with sequences from ``first`` on."""
    state = {"producer_id": 7, "producer_epoch": 0, "base_sequence": first, **changes}
    return append(log, *[b"%d" % (first + n) for n in range(count)], **state)


def read_log(log: PartitionLog, offset: int, max_bytes: int) -> bytes:
    """The bytes of the batches from ``offset`` on; the first batch is complete."""
    return in_memory([log.locate(offset, max_bytes, whole_first=True).records])


def records(log: PartitionLog, start: int | None = None) -> list[StoredRecord]:
    """All records from an offset on, read in pieces, with valid CRCs."""
    found: list[StoredRecord] = []
    at = log.start_offset if start is None else start
    while at < log.end_offset:
        batches = list(read_sets(read_log(log, at, 1_500)))
        assert batches, at
        for batch in batches:
            assert batch.crc_ok
            found += [record for record in batch.records() if record.offset >= at]
            at = batch.last_offset + 1
    return found


def values(log: PartitionLog) -> list[bytes | None]:
    """All values in the log, whose offsets have no gap."""
    found = records(log)
    assert [record.offset for record in found] == list(range(log.start_offset, log.end_offset))
    return [record.value for record in found]
