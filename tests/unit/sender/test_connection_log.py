"""The log tells of every trouble, and of none too often."""

from __future__ import annotations

import logging

import pytest

from kprod.errors import ConnectionLost, DeliveryTimeoutError
from kprod.sender.connection_log import INTERVAL, KEPT, ConnectionLog

ONE = "broker 1 at one:9092"
REFUSED = ConnectionLost(f"{ONE}: Connection refused")


@pytest.fixture
def log() -> ConnectionLog:
    return ConnectionLog("my-client")


def told(caplog: pytest.LogCaptureFixture) -> list[str]:
    """Other tests may have left a producer in this process, which writes to the same log."""
    return [message for message in caplog.messages if message.startswith("my-client: ")]


def test_the_first_failure_is_told_at_once(
    log: ConnectionLog, caplog: pytest.LogCaptureFixture
) -> None:
    log.failed(ONE, REFUSED, 0.0)
    assert told(caplog) == ["my-client: broker 1 at one:9092: Connection refused (KP-1601)"]
    (record,) = [record for record in caplog.records if record.message == told(caplog)[0]]
    assert record.levelno == logging.WARNING


def test_the_next_ones_are_counted_and_told_after_a_minute(
    log: ConnectionLog, caplog: pytest.LogCaptureFixture
) -> None:
    for second in range(int(INTERVAL) * 3 + 1):
        log.failed(ONE, REFUSED, float(second))
    assert len(told(caplog)) == 4
    assert (
        told(caplog)[1:]
        == [f"my-client: {REFUSED.with_number()} (59 more failures in the last 60 s)"] * 3
    )


def test_that_it_works_again_is_told_once(
    log: ConnectionLog, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    log.works(ONE, 0.0)
    assert told(caplog) == []
    for second in range(10):
        log.failed(ONE, REFUSED, float(second))
    log.works(ONE, 12.0)
    log.works(ONE, 13.0)
    assert told(caplog)[1:] == [f"my-client: {ONE} is connected again after 12 s, 10 failures"]
    assert [each.levelno for each in caplog.records if "again" in each.message] == [logging.INFO]


def test_what_is_remembered_is_bounded(
    log: ConnectionLog, caplog: pytest.LogCaptureFixture
) -> None:
    for number in range(KEPT + 1):
        log.failed(f"broker {number}", REFUSED, float(number))
    caplog.clear()
    log.failed(f"broker {KEPT}", REFUSED, 0.0)
    assert told(caplog) == []
    log.failed("broker 0", REFUSED, 0.0)
    assert len(told(caplog)) == 1


# Records that fail while nobody looks -------------------------------------------------------------


TIMEOUT = DeliveryTimeoutError("not acknowledged")


def test_the_first_are_told_at_once(log: ConnectionLog, caplog: pytest.LogCaptureFixture) -> None:
    log.unobserved("t", 7, TIMEOUT, 0.0)
    (line,) = told(caplog)
    assert "7 records for topic 't' failed, and nobody has asked" in line
    assert "not acknowledged" in line
    assert "persisted: NO" in line


def test_more_of_the_same_are_counted_for_a_minute(
    log: ConnectionLog, caplog: pytest.LogCaptureFixture
) -> None:
    for _ in range(3):
        log.unobserved("t", 7, TIMEOUT, 0.0)
    log.unobserved("t", 1, TIMEOUT, INTERVAL)
    assert len(told(caplog)) == 2
    assert "1 record for topic 't' failed (and 14 since the last such line)" in told(caplog)[1]


def test_so_many_topics_are_remembered(
    log: ConnectionLog, caplog: pytest.LogCaptureFixture
) -> None:
    for number in range(KEPT + 1):
        log.unobserved(f"t{number}", 1, TIMEOUT, 0.0)
    assert len(told(caplog)) == KEPT + 1
