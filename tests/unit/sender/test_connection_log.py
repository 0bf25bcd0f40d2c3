"""Failures of connections and records are logged, at a limited rate."""

from __future__ import annotations

import pytest

from kprod.admin.cluster_client import connect
from kprod.errors import ConnectionLost, DeliveryTimeoutError
from kprod.sender.connection_log import INTERVAL, KEPT, ConnectionLog
from tests.support.ports import free_port

ONE = "broker 1 at one:9092"
TIMEOUT = DeliveryTimeoutError("not acknowledged")


@pytest.fixture
def log() -> ConnectionLog:
    return ConnectionLog("my-client")


def logged(caplog: pytest.LogCaptureFixture) -> list[str]:
    """Messages of this client; producers of other tests may write to the same log."""
    return [message for message in caplog.messages if message.startswith("my-client: ")]


def test_repeated_failures_are_counted_and_logged_each_minute(
    log: ConnectionLog, caplog: pytest.LogCaptureFixture
) -> None:
    for second in range(int(INTERVAL) * 3 + 1):
        log.seldom(ONE, "refused", float(second), "failures")
    again = "my-client: refused (59 more failures in the last 60 s)"
    assert logged(caplog) == ["my-client: refused", again, again, again]


def test_further_failed_records_of_a_topic_are_counted_for_a_minute(
    log: ConnectionLog, caplog: pytest.LogCaptureFixture
) -> None:
    for _ in range(3):
        log.unobserved("t", 7, TIMEOUT, 0.0)
    log.unobserved("t", 1, TIMEOUT, INTERVAL)
    assert len(logged(caplog)) == 2
    assert logged(caplog)[1].endswith("(14 more records in the last 60 s)")


def test_each_topic_is_logged_even_beyond_the_number_of_kept_topics(
    log: ConnectionLog, caplog: pytest.LogCaptureFixture
) -> None:
    for number in range(KEPT + 1):
        log.unobserved(f"t{number}", 1, TIMEOUT, 0.0)
    assert len(logged(caplog)) == KEPT + 1


def test_a_raised_connection_error_is_not_logged_as_well(caplog: pytest.LogCaptureFixture) -> None:
    with connect(f"127.0.0.1:{free_port()}", 10.0, {}) as client, pytest.raises(ConnectionLost):
        client.brokers()
    assert not [line for line in caplog.messages if line.startswith("kprod-admin: ")]
