"""Lines that clients can cause at will."""

from __future__ import annotations

import logging

import pytest

from kprod.broker.handler_pool import QuietLog
from tests.support.fake_clock import FakeClock

LOG = logging.getLogger("kprod.test_quiet_log")


def test_the_rest_is_counted(caplog: pytest.LogCaptureFixture) -> None:
    clock = FakeClock()
    log = QuietLog(LOG, clock, most=2, seconds=10.0)
    for number in range(7):
        log.warning("client %d", number)
    clock.advance(10.0)
    log.warning("client %d", 7)
    assert [record.getMessage() for record in caplog.records] == [
        "client 0",
        "client 1",
        "client 7 (and 5 lines like this one were left out)",
    ]


def test_a_line_that_cannot_be_written_raises_nothing() -> None:
    class Broken(logging.Handler):
        def handle(self, record: logging.LogRecord) -> bool:
            raise MemoryError

    handler = Broken()
    LOG.addHandler(handler)
    try:
        QuietLog(LOG, FakeClock()).exception("never seen")
    finally:
        LOG.removeHandler(handler)
