"""Records that fail while nobody looks are told of once, with their number, and not in a flood."""

from __future__ import annotations

import pytest

from kprod.errors import DeliveryTimeoutError
from kprod.sender.connection_log import INTERVAL, KEPT, UnobservedFailures
from tests.support.fake_clock import FakeClock

TIMEOUT = DeliveryTimeoutError("not acknowledged")


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
def unread(clock: FakeClock) -> UnobservedFailures:
    return UnobservedFailures("my-client", clock.monotonic)


def told(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [message for message in caplog.messages if message.startswith("my-client: ")]


def test_the_first_are_told_at_once(
    unread: UnobservedFailures, caplog: pytest.LogCaptureFixture
) -> None:
    unread.failed("t", 7, TIMEOUT)
    (line,) = told(caplog)
    assert "7 records for topic 't' failed, and nobody has asked" in line
    assert "not acknowledged" in line
    assert "persisted: NO" in line


def test_more_of_the_same_are_counted_for_a_minute(
    unread: UnobservedFailures, clock: FakeClock, caplog: pytest.LogCaptureFixture
) -> None:
    for _ in range(3):
        unread.failed("t", 7, TIMEOUT)
    clock.advance(INTERVAL)
    unread.failed("t", 1, TIMEOUT)
    assert len(told(caplog)) == 2
    assert "1 record for topic 't' failed (and 14 since the last such line)" in told(caplog)[1]


def test_what_is_remembered_is_bounded(
    unread: UnobservedFailures, caplog: pytest.LogCaptureFixture
) -> None:
    for number in range(KEPT + 1):
        unread.failed(f"t{number}", 1, TIMEOUT)
    assert len(told(caplog)) == KEPT + 1
