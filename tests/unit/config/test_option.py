"""One row of the table: spellings, and what never shows a secret."""

from __future__ import annotations

import pytest

from kprod.config import Option
from kprod.config.kinds import ProtocolText, Refused

PASSWORD = Option("broker_password", None, ProtocolText(), "A secret.", ("pass.word",), secret=True)


def test_spellings() -> None:
    assert PASSWORD.spellings == ("broker_password", "broker.password", "pass.word")


def test_a_secret_is_not_in_the_error() -> None:
    with pytest.raises(Refused) as raised:
        PASSWORD.convert(123456, "broker_password")
    assert "123456" not in str(raised.value)
    assert "***" in str(raised.value)


def test_a_secret_is_not_shown() -> None:
    assert PASSWORD.shown("hunter2") == "***"
    assert PASSWORD.shown(None) == "None"
