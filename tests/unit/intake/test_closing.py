"""What was plugged in is closed once, and none of it can keep the others from it."""

from __future__ import annotations

import pytest

from kprod.intake.interceptors import close_all


class Plug:
    """Counts its endings, and may fail at them."""

    def __init__(self, error: BaseException | None = None) -> None:
        self.error = error
        self.closed = 0

    def close(self) -> None:
        self.closed += 1
        if self.error is not None:
            raise self.error


def test_each_is_closed_once() -> None:
    one, other = Plug(), Plug()
    close_all([one, other, one])
    assert (one.closed, other.closed) == (1, 1)


def test_what_has_no_end_is_left_alone() -> None:
    close_all([None, "json", str.encode, Plug, object(), type("Odd", (), {"close": 5})()])


def test_a_failure_is_logged_and_stops_nothing(caplog: pytest.LogCaptureFixture) -> None:
    failing, other = Plug(ValueError("no")), Plug()
    close_all([failing, other])
    assert other.closed == 1
    (told,) = caplog.records
    assert "Plug.close failed" in told.getMessage()
    assert told.exc_info is not None
    assert str(told.exc_info[1]) == "no"
