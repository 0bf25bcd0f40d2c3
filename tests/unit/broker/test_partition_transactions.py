"""Transactions in a partition's log: last stable offset, aborted transactions, recovery."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from kio.schema.errors import ErrorCode

from kprod.broker.log.local_log import Fetched
from kprod.broker.log.log_cleaner import LogCleaner
from kprod.broker.log.log_config import LogConfig
from kprod.broker.log.log_files import check_directory
from kprod.broker.log.partition_log import PartitionLog
from kprod.broker.records.batch_writer import TransactionMarker
from kprod.errors import BrokerError
from kprod.records.record_batch import RecordBatch, read_batches
from tests.support.raw_batch import raw_batch
from tests.unit.broker.logs import SMALL, append, open_log, read_log

TRANSACTIONAL = 0x10
NOW = 2_000


def send(log: PartitionLog, producer_id: int, sequence: int, *values: bytes, epoch: int = 0) -> int:
    """Append a batch to the producer's transaction; returns its base offset."""
    guard = log.verification(producer_id, epoch, NOW)
    return log.append(*batch(producer_id, sequence, *values, epoch=epoch), guard).base_offset


def batch(
    producer_id: int, sequence: int, *values: bytes, epoch: int = 0
) -> tuple[RecordBatch, bytes]:
    state = {"producer_id": producer_id, "producer_epoch": epoch, "base_sequence": sequence}
    data = raw_batch(values, attributes=TRANSACTIONAL, **state)
    (found,) = read_batches(data)
    return found, data


def finish(
    log: PartitionLog, producer_id: int, *, committed: bool, epoch: int = 0, version: int = 0
) -> int:
    marker = TransactionMarker(producer_id, epoch, committed, 0)
    return log.end_transaction(marker, NOW, transaction_version=version).base_offset


def fetch(log: PartitionLog, offset: int = 0, max_bytes: int = 100_000) -> Fetched:
    return log.locate(offset, max_bytes, whole_first=True, committed=True)


def committed(log: PartitionLog) -> list[bytes | None]:
    return [record.value for record in log.records(committed=True)]


def test_open_transactions_hold_back_the_last_stable_offset(log: PartitionLog) -> None:
    append(log, b"before")
    assert log.last_stable_offset == 1
    assert send(log, 7, 0, b"a", b"b") == 1
    assert send(log, 8, 0, b"c") == 3
    append(log, b"after")
    assert (log.last_stable_offset, log.end_offset) == (1, 5)
    assert committed(log) == [b"before"]
    assert fetch(log, 1).records == b""
    finish(log, 7, committed=True)
    assert log.last_stable_offset == 3
    assert committed(log) == [b"before", b"a", b"b"]
    finish(log, 8, committed=False)
    assert log.last_stable_offset == log.end_offset == 7
    assert committed(log) == [b"before", b"a", b"b", b"after"]


def test_a_fetch_lists_the_aborted_transactions_in_its_range(log: PartitionLog) -> None:
    send(log, 7, 0, b"a")
    send(log, 8, 0, b"b")
    finish(log, 7, committed=False)
    finish(log, 8, committed=True)
    send(log, 7, 1, b"c")
    finish(log, 7, committed=False)
    found = fetch(log)
    assert [(one.producer_id, one.first_offset) for one in found.aborted or ()] == [(7, 0), (7, 4)]
    assert [one.first_offset for one in fetch(log, 3).aborted or ()] == [4]
    assert fetch(log, log.end_offset).aborted == ()
    uncommitted = log.locate(0, 1_000, whole_first=True)
    assert uncommitted.aborted is None
    assert committed(log) == [b"b"]


def code_of(log: PartitionLog, producer_id: int, sequence: int, epoch: int = 0) -> int:
    with pytest.raises(BrokerError) as caught:
        send(log, producer_id, sequence, b"x", epoch=epoch)
    return caught.value.code


def test_a_late_batch_of_an_ended_transaction_is_refused(log: PartitionLog) -> None:
    late = batch(7, 0, b"late")
    with pytest.raises(BrokerError, match="INVALID_TXN_STATE"):
        log.append(*late)
    # The coordinator has verified it; then the transaction times out.
    guard = log.verification(7, 0, NOW)
    finish(log, 7, committed=False, epoch=1)
    with pytest.raises(BrokerError) as caught:
        log.append(*late, guard)
    assert caught.value.code in (ErrorCode.invalid_txn_state, ErrorCode.invalid_producer_epoch)
    assert log.last_stable_offset == log.end_offset
    assert code_of(log, 7, 0) == ErrorCode.invalid_producer_epoch


def test_a_non_transactional_batch_within_a_transaction_is_refused(log: PartitionLog) -> None:
    send(log, 7, 0, b"a")
    with pytest.raises(BrokerError, match="INVALID_TXN_STATE"):
        append(log, b"b", producer_id=7, producer_epoch=0, base_sequence=1)
    assert code_of(log, 7, 5) == ErrorCode.out_of_order_sequence_number
    assert send(log, 7, 0, b"a") == 0, "a duplicate"


def test_a_marker_of_version_2_begins_an_epoch(log: PartitionLog) -> None:
    send(log, 7, 0, b"a")
    with pytest.raises(BrokerError, match="INVALID_PRODUCER_EPOCH"):
        finish(log, 7, committed=True, epoch=0, version=2)
    finish(log, 7, committed=True, epoch=1, version=2)
    assert code_of(log, 7, 1) == ErrorCode.invalid_producer_epoch
    finish(log, 7, committed=True, epoch=1, version=2)  # repeated after a crash
    assert send(log, 7, 0, b"b", epoch=1) == 3
    with pytest.raises(BrokerError):
        finish(log, 7, committed=True, epoch=1, version=2)  # of the previous transaction
    assert log.last_stable_offset == 3


def test_a_transaction_must_begin_with_sequence_0_in_version_2(log: PartitionLog) -> None:
    guard = log.verification(7, 0, NOW)
    late = batch(7, 3, b"x")
    with pytest.raises(BrokerError, match="OUT_OF_ORDER_SEQUENCE_NUMBER"):
        log.append(*late, guard, from_zero=True)
    log.append(*late, guard)  # version 1: the state may have expired


def test_a_marker_of_an_old_coordinator_epoch_is_refused(log: PartitionLog) -> None:
    send(log, 7, 0, b"a")
    log.end_transaction(TransactionMarker(7, 0, True, 5), NOW)
    with pytest.raises(BrokerError, match=r"\(52\)"):
        log.end_transaction(TransactionMarker(7, 0, True, 4), NOW)


def write_transactions(log: PartitionLog) -> list[bytes]:
    """Transactions over several segments, one of which spans all of them."""
    send(log, 9, 0, b"long")
    expected = []
    for number in range(60):
        value = b"%d" % number
        send(log, 7, 2 * number, value, value * 20)
        finish(log, 7, committed=number % 3 != 0)
        if number % 3:
            expected += [value, value * 20]
    return expected


def aborted(log: PartitionLog) -> list[object]:
    """The entries of all transaction indexes."""
    return [one for segment in log.segments for one in segment.transaction_index.load()]


@pytest.mark.parametrize("ended", [True, False])
@pytest.mark.parametrize(
    ("clean", "damage"),
    [(True, None), (False, None), (False, "missing"), (True, "cut"), (True, "wrong")],
)
def test_recovery_restores_all_transactions(
    tmp_path: Path, clean: bool, damage: str | None, ended: bool
) -> None:
    log = open_log(tmp_path)
    expected = write_transactions(log)
    assert len(log.segments) > 2
    assert committed(log) == []
    if ended:
        finish(log, 9, committed=False)
    before, stable = aborted(log), log.last_stable_offset
    log.close() if clean else log.abandon()
    path = sorted(tmp_path.glob("*.txnindex"))[1]
    content = path.read_bytes()
    if damage == "missing":
        path.unlink()
    elif damage is not None:
        path.write_bytes(content[:-5] if damage == "cut" else b"\7\7" + content[2:])
    again = open_log(tmp_path, None if clean else 0)
    assert aborted(again) == before
    assert again.last_stable_offset == stable == (again.end_offset if ended else 0)
    if not ended:
        assert code_of(again, 9, 5) == ErrorCode.out_of_order_sequence_number
        send(again, 9, 1, b"more")
        finish(again, 9, committed=False)
    assert committed(again) == expected
    again.close()
    assert not list(check_directory(tmp_path))


def test_retention_and_compaction_keep_open_transactions(tmp_path: Path) -> None:
    config = replace(SMALL, retention_bytes=1, min_cleanable_dirty_ratio=0.0)
    log = open_log(tmp_path, config=config)
    write_transactions(log)
    assert log.delete_old_segments(NOW) == 0
    assert not LogCleaner(tmp_path).clean_if_dirty(log, NOW)
    finish(log, 9, committed=True)
    assert log.delete_old_segments(NOW) > 0


def test_compaction_removes_aborted_records(tmp_path: Path) -> None:
    config = LogConfig(segment_bytes=1_500, segment_index_bytes=1_000, cleanup_policy="compact")
    log = open_log(tmp_path, config=config)
    write_transactions(log)
    finish(log, 9, committed=False)
    append(log, b"end")
    before = committed(log)
    LogCleaner(tmp_path).clean(log, NOW)
    assert set(committed(log)) <= set(before)
    for found in read_batches(read_log(log, 0, 1_000_000)):
        assert found.producer_id != 9 or found.is_control or not list(found.records())


def test_a_failed_append_leaves_the_transaction_unchanged(log: PartitionLog) -> None:
    send(log, 7, 0, b"a")
    log.fail_with(OSError("no disk"))
    with pytest.raises(BrokerError):
        finish(log, 7, committed=False)
    log.fail_with(None)
    assert log.last_stable_offset == 0
    finish(log, 7, committed=False)
    (one,) = fetch(log).aborted or ()
    assert (one.first_offset, one.last_offset) == (0, 1)
