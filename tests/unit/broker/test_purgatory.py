"""Waiting for a partition."""

from __future__ import annotations

import threading

from kprod.broker.purgatory import Purgatory


def test_only_those_who_wait_for_the_key_are_woken() -> None:
    purgatory = Purgatory()
    a, b = threading.Event(), threading.Event()
    purgatory.watch(["x", "y"], a)
    purgatory.watch(["y"], b)
    purgatory.wake("x")
    assert (a.is_set(), b.is_set()) == (True, False)
    a.clear()
    purgatory.wake("y")
    assert (a.is_set(), b.is_set()) == (True, True)


def test_who_left_is_not_woken() -> None:
    purgatory = Purgatory()
    event = threading.Event()
    purgatory.watch(["x", "y"], event)
    purgatory.forget(["x", "y"], event)
    purgatory.wake("x")
    purgatory.close()
    assert not event.is_set()


def test_closing_wakes_all_and_later_ones_at_once() -> None:
    purgatory = Purgatory()
    before, after = threading.Event(), threading.Event()
    purgatory.watch(["x"], before)
    purgatory.close()
    purgatory.watch(["x"], after)
    assert purgatory.closed
    assert before.is_set()
    assert after.is_set()
