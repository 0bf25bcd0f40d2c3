"""The log tells of every trouble, and of none too often."""

from __future__ import annotations

import logging

import pytest

from kprod.errors import ConnectionLost
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


def test_every_broker_is_told_of(log: ConnectionLog, caplog: pytest.LogCaptureFixture) -> None:
    for number in range(3):
        log.failed(f"broker {number}", ConnectionLost(f"broker {number}: gone"), 0.0)
    assert told(caplog) == [f"my-client: broker {n}: gone (KP-1601)" for n in range(3)]


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


def test_a_broker_that_comes_and_goes_is_told_of_twice_a_minute(
    log: ConnectionLog, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    for second in range(int(INTERVAL) * 10):
        log.failed(ONE, REFUSED, second + 0.0)
        log.works(ONE, second + 0.5)
    assert len(told(caplog)) == 20
    assert told(caplog)[-1].endswith("after 0.5 s, 1 failure")


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


def test_a_mistake_is_told_with_its_stack_and_not_every_time(
    log: ConnectionLog, caplog: pytest.LogCaptureFixture
) -> None:
    for second in range(int(INTERVAL) * 2):
        log.mistake("it could not be closed", ZeroDivisionError("a mistake"), float(second))
    assert told(caplog) == ["my-client: it could not be closed\nZeroDivisionError: a mistake"] * 2


def test_mistakes_that_are_remembered_are_bounded(
    log: ConnectionLog, caplog: pytest.LogCaptureFixture
) -> None:
    for number in range(2 * KEPT):
        log.mistake(f"mistake {number}", ZeroDivisionError(), 0.0)
    assert len(told(caplog)) == 2 * KEPT
