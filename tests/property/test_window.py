"""Whatever happens to requests, a window stays within its bounds and lets a batch through."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from kprod.sender.broker import Window

bytes_ = st.integers(1, 1 << 24)
answers = st.tuples(st.just("answered"), bytes_, st.floats(0, 1e6))
losses = st.tuples(st.just("lost"), bytes_, st.floats(0, 1e6))


@given(
    least=st.integers(1, 1 << 20),
    most=st.integers(1, 1 << 24),
    happenings=st.lists(st.one_of(answers, losses), max_size=50),
)
def test_a_window_stays_within_its_bounds(
    least: int, most: int, happenings: list[tuple[str, int, float]]
) -> None:
    window = Window(least, most, 3.0)
    for what, nbytes, seconds in happenings:
        before = window.size
        window.in_flight += nbytes
        if what == "answered":
            window.answered(nbytes, seconds)
            assert before <= window.size <= before + nbytes
        else:
            window.failed(nbytes, seconds, seconds + 1.0, lost=True)
            assert window.size <= before
        assert least <= window.size <= max(least, most)
        assert window.in_flight == 0
        assert window.room() > 0


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
