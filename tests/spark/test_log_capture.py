"""What tests see of the log stays text when pyspark is in the process."""

from __future__ import annotations

import logging

import pytest
from pyspark.logger import PySparkLogger


def test_its_formatter_stays_off_our_handlers(caplog: pytest.LogCaptureFixture) -> None:
    PySparkLogger("theirs").addHandler(caplog.handler)
    try:
        raise ValueError("broken")
    except ValueError:
        logging.getLogger("kprod.tests").exception("it went wrong")
    assert "ValueError: broken" in caplog.text
