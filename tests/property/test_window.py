"""The window of a broker after lost requests."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from kprod.sender.broker import Window


@given(least=st.integers(1, 1000), losses=st.integers(0, 20))
def test_a_window_grows_back_after_any_number_of_losses(least: int, losses: int) -> None:
    window = Window(least, 8 * least, 3.0)
    for number in range(losses):
        window.in_flight += least
        window.failed(least, number + 0.5, number + 1.0, lost=True)
    for _ in range(200):
        window.in_flight += window.size
        window.answered(window.size, 0.001)
    assert window.size == 8 * least
    window.in_flight += 1 << 30
    assert window.room() == 8 * least
