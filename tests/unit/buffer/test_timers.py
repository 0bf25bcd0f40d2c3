"""Times that come, change, and are taken back."""

from __future__ import annotations

import weakref

from hypothesis import given
from hypothesis import strategies as st

from kprod.buffer.timers import Timers

FOREVER = float("inf")


def test_without_a_key_nothing_is_ever_due() -> None:
    timers = Timers()
    assert timers.first() == FOREVER
    assert timers.take_due(1e9) == []


def test_a_key_is_due_at_the_time_set_last() -> None:
    timers = Timers()
    timers.set("a", 5)
    timers.set("a", 9)
    assert (timers.first(), timers.take_due(8)) == (9, [])
    timers.set("a", 3)
    assert (timers.first(), timers.take_due(3)) == (3, ["a"])
    assert timers.first() == FOREVER


def test_at_latest_never_puts_it_off() -> None:
    timers = Timers()
    timers.set_at_latest("a", 5)
    timers.set_at_latest("a", 9)
    assert timers.first() == 5
    timers.set_at_latest("a", 3)
    assert timers.first() == 3


def test_what_was_discarded_is_not_due() -> None:
    timers = Timers()
    timers.set("a", 5)
    timers.set("b", 6)
    timers.discard("a")
    timers.discard("never set")
    assert timers.first() == 6
    assert timers.take_due(10) == ["b"]


class Key:
    """Something that can be let go of."""


def test_what_was_discarded_is_let_go_of_though_nothing_else_happens() -> None:
    """Also behind a key that stays: the queues of 12,000 topics go in one turn of the sender."""
    timers, stays, keys = Timers(), Key(), [Key() for _ in range(1000)]
    timers.set(stays, 0)
    for number, key in enumerate(keys):
        timers.set(key, number % 7)
    held = [weakref.ref(key) for key in keys]
    for key in keys:
        timers.discard(key)
    del key, keys
    assert sum(ref() is not None for ref in held) < 100
    assert timers.take_due(10) == [stays]


def test_equal_times_come_in_the_order_they_were_set() -> None:
    timers = Timers()
    for key in "badc":
        timers.set(key, 1)
    timers.set("b", 1)
    assert timers.take_due(1) == list("badc")


def test_those_out_of_order_come_between_those_in_order() -> None:
    timers = Timers()
    for key, when in [("a", 2), ("b", 4), ("c", 1), ("d", 2), ("e", 4), ("f", 3)]:
        timers.set(key, when)
    assert timers.take_due(3) == list("cadf")
    timers.discard("e")
    timers.set("g", 4)
    assert timers.take_due(4) == list("bg")


def test_a_timer_that_is_set_again_and_again_takes_no_room() -> None:
    timers = Timers()
    for when in range(10_000, 0, -1):
        timers.set("often", when)
    assert len(timers) == 1
    assert timers.take_due(0) == []
    assert timers.take_due(1) == ["often"]


def test_one_that_is_put_off_again_and_again_is_due_once() -> None:
    timers = Timers()
    for when in range(10_000):
        timers.set("often", when)
    assert timers.take_due(9_998) == []
    assert timers.take_due(9_999) == ["often"]
    assert timers.first() == FOREVER


keys = st.sampled_from("abcdef")
acts = st.one_of(
    st.tuples(st.just("set"), keys, st.integers(0, 50)),
    st.tuples(st.just("at latest"), keys, st.integers(0, 50)),
    st.tuples(st.just("discard"), keys, st.just(0)),
    st.tuples(st.just("take"), st.just(""), st.integers(0, 50)),
)


@given(st.lists(acts, max_size=200))
def test_they_are_those_of_a_plain_dict(done: list[tuple[str, str, int]]) -> None:
    timers = Timers()
    plain: dict[str, float] = {}
    for act, key, when in done:
        if act == "set":
            timers.set(key, when)
            plain[key] = when
        elif act == "at latest":
            timers.set_at_latest(key, when)
            plain[key] = min(when, plain.get(key, FOREVER))
        elif act == "discard":
            timers.discard(key)
            plain.pop(key, None)
        else:
            due = {key for key, due in plain.items() if due <= when}
            taken = timers.take_due(when)
            assert set(taken) == due
            assert taken == sorted(taken, key=plain.__getitem__)
            plain = {key: due for key, due in plain.items() if due > when}
        assert timers.first() == min(plain.values(), default=FOREVER)
        assert len(timers) == len(plain)
