"""Whatever happens to requests, a window stays within its bounds and lets a batch through."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from kprod.sender.window import Window

bytes_ = st.integers(1, 1 << 24)
answers = st.tuples(st.just("answered"), bytes_, st.integers(0, 1 << 24), st.floats(0, 1e6))
losses = st.tuples(st.just("lost"), st.floats(0, 1e6), st.floats(0, 1e6), st.just(0.0))


@given(
    least=st.integers(1, 1 << 20),
    most=st.integers(1, 1 << 24),
    happenings=st.lists(st.one_of(answers, losses), max_size=50),
)
def test_a_window_stays_within_its_bounds(
    least: int, most: int, happenings: list[tuple[str, float, float, float]]
) -> None:
    told: list[int] = []
    window = Window(least, most, 3.0, told.append)
    for what, one, two, seconds in happenings:
        before = window.size
        if what == "answered":
            window.answered(int(one), int(two) + int(one), seconds)
            assert window.size <= before + one
        else:
            window.lost(one, one + two)
            assert window.size <= before
        assert least <= window.size <= max(least, most)
        assert told[-1] == window.size
        assert window.room(0) > 0
        assert 0 <= window.room(window.size + 1) <= max(least, most)


@given(least=st.integers(1, 1000), losses_=st.integers(0, 20))
def test_what_was_lost_is_regained(least: int, losses_: int) -> None:
    """However often it fell, answers let requests go again as if nothing had happened."""
    window = Window(least, 8 * least, 3.0, lambda size: None)
    for number in range(losses_):
        window.lost(number + 0.5, number + 1.0)
    for _ in range(200):
        window.answered(window.size, window.size, 0.001)
    assert window.size == 8 * least
    assert window.room(1 << 30) == 8 * least
