"""Deadlines fire once, in order; those that were moved or withdrawn do not."""

from __future__ import annotations

import gc
import weakref

from hypothesis import given
from hypothesis import strategies as st

from kprod.sender.deadlines import FOREVER, Deadlines


class Owner:
    """Keeps when it was called; ``again``: the deadline that it sets then."""

    def __init__(self, deadlines: Deadlines) -> None:
        self.due = FOREVER
        self.fired: list[float] = []
        self.again = FOREVER
        self._deadlines = deadlines

    def fire(self, now: float) -> None:
        assert self.due == FOREVER
        self.fired.append(now)
        self._deadlines.set(self, self.again)


def test_an_owner_that_is_due_again_at_once_waits_for_the_next_call() -> None:
    deadlines = Deadlines()
    owner = Owner(deadlines)
    owner.again = 1.0
    deadlines.set(owner, 1.0)
    deadlines.fire(5.0)
    assert owner.fired == [5.0]
    assert deadlines.first == 1.0
    deadlines.fire(5.0)
    assert owner.fired == [5.0, 5.0]


def test_withdrawn_deadlines_let_their_owners_go() -> None:
    deadlines = Deadlines()
    owners = [Owner(deadlines) for _ in range(100)]
    for owner in owners:
        deadlines.set(owner, 10.0)
        deadlines.set(owner, FOREVER)
    alive = [weakref.ref(owner) for owner in owners]
    del owner, owners
    gc.collect()
    assert sum(each() is not None for each in alive) < 20


@given(
    st.lists(
        st.one_of(
            st.tuples(st.integers(0, 5), st.one_of(st.integers(0, 9), st.just(FOREVER))),
            st.tuples(st.just(-1), st.integers(0, 9)),
        ),
        max_size=60,
    )
)
def test_it_does_what_a_table_of_times_does(steps: list[tuple[int, float]]) -> None:
    """-1 stands for firing at a time; else the owner of that number gets a deadline."""
    deadlines = Deadlines()
    owners = [Owner(deadlines) for _ in range(6)]
    times = [FOREVER] * 6
    for number, when in steps:
        if number >= 0:
            deadlines.set(owners[number], when)
            times[number] = when
        else:
            before = [len(owner.fired) for owner in owners]
            deadlines.fire(when)
            fired = [len(owner.fired) - count for owner, count in zip(owners, before, strict=True)]
            assert fired == [int(time <= when) for time in times]
            times = [FOREVER if time <= when else time for time in times]
        assert [owner.due for owner in owners] == times
        assert deadlines.first == min(times)
