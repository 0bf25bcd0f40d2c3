"""What a partition is after it was opened again: cleanly stopped, crashed, or damaged."""

from __future__ import annotations

from pathlib import Path

import pytest

from kprod.broker.log.partition_log import PartitionLog
from kprod.errors import BrokerError
from tests.unit.broker.logs import append, open_log, produce, values

CRASHED = 0


def filled(directory: Path, count: int = 25) -> list[bytes]:
    """A log of several segments that ended with a crash; returns what is in it."""
    log = open_log(directory)
    sent = [b"%04d" % number * 100 for number in range(count)]
    for value in sent:
        append(log, value)
    log.abandon()
    return sent


def reopened(directory: Path, recovery_point: int | None) -> list[bytes | None]:
    log = open_log(directory, recovery_point)
    found = values(log)
    append(log, b"one more")
    assert values(log) == [*found, b"one more"]
    log.abandon()
    return found


def test_after_a_clean_stop_files_have_no_slack_and_nothing_is_lost(tmp_path: Path) -> None:
    sent = filled(tmp_path)
    log = open_log(tmp_path, CRASHED)
    log.close()
    for path in tmp_path.glob("*.index"):
        assert path.stat().st_size < 200
    assert reopened(tmp_path, None) == sent


def test_a_bad_batch_in_the_middle_ends_the_log_there(tmp_path: Path) -> None:
    sent = filled(tmp_path)
    second = sorted(tmp_path.glob("*.log"))[1]
    content = bytearray(second.read_bytes())
    content[-1] ^= 1
    second.write_bytes(content)
    found = reopened(tmp_path, CRASHED)
    third = int(sorted(tmp_path.glob("*.log"))[1].stem)
    assert found == sent[: len(found)]
    assert 0 < third <= len(found) < len(sent)


def test_leftovers_are_removed(tmp_path: Path) -> None:
    sent = filled(tmp_path)
    for name in ("00000000000000000099.index", "00000000000000000000.log.deleted", "x.cleaned"):
        (tmp_path / name).write_bytes(b"?")
    assert reopened(tmp_path, CRASHED) == sent
    assert not list(tmp_path.glob("*9.index")) + list(tmp_path.glob("*.deleted"))


def after(log: PartitionLog, recovery_point: int | None) -> PartitionLog:
    """The log, opened again after a crash or a clean stop."""
    log.close() if recovery_point is None else log.abandon()
    return open_log(log.directory, recovery_point)


@pytest.mark.parametrize("recovery_point", [None, CRASHED])
def test_the_last_five_batches_are_known_after_any_end(
    log: PartitionLog, recovery_point: int | None
) -> None:
    for number in range(100):
        produce(log, number)
    log = after(log, recovery_point)
    for number in range(95, 100):
        assert produce(log, number).base_offset == number
    with pytest.raises(BrokerError, match="OUT_OF_ORDER"):
        produce(log, 94)
    assert produce(log, 100).base_offset == 100


@pytest.mark.parametrize("recovery_point", [None, CRASHED])
def test_a_producer_that_wrote_long_ago_is_known(
    log: PartitionLog, recovery_point: int | None
) -> None:
    produce(log, 0, 3)
    for _ in range(30):
        append(log, b"x" * 500)
    log = after(log, recovery_point)
    assert produce(log, 0, 3).base_offset == 0
    with pytest.raises(BrokerError, match="OUT_OF_ORDER"):
        produce(log, 4)
