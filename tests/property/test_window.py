"""However often requests are lost, a window grows back to its full size."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from kprod.sender.broker import Window


@given(least=st.integers(1, 1000), losses_=st.integers(0, 20))
def test_what_was_lost_is_regained(least: int, losses_: int) -> None:
    """However often it fell, answers let requests go again as if nothing had happened."""
    window = Window(least, 8 * least, 3.0)
    for number in range(losses_):
        window.in_flight += least
        window.failed(least, number + 0.5, number + 1.0, lost=True)
    for _ in range(200):
        window.in_flight += window.size
        window.answered(window.size, 0.001)
    assert window.size == 8 * least
    window.in_flight += 1 << 30
    assert window.room() == 8 * least
