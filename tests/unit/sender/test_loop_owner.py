"""Turns that a caller takes while it waits."""

from __future__ import annotations

from typing import Any, cast

import pytest

from kprod.latch import Latch
from kprod.transport.base import Readiness
from tests.support.scripted_cluster import ScriptedCluster
from tests.support.sender_rig import SenderRig


class Mistaken:
    """Work that never comes to anything."""

    finished = True

    def __init__(self) -> None:
        self.turns = 0
        self.broken_by: BaseException | None = None

    def run_once(self, longest: float) -> None:
        self.turns += 1
        self.broken_by = ArithmeticError("a mistake in a turn")
        raise self.broken_by


def test_a_caller_does_not_wait_for_the_network_once_its_record_has_ended(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    cluster = ScriptedCluster()
    cluster.add(1)
    rig = SenderRig(cluster)
    rig.sender.network.interruptible = True
    loop_owner = rig.sender.loop_owner
    told, waits = Latch(), list[float | None]()

    class Ending:
        """The sender, with a round that ends the caller's record before it waits."""

        finished = True
        broken_by: BaseException | None = None

        def run_once(self, longest: float) -> None:
            told.open()
            rig.sender.run_once(longest)

    def poll(timeout: float | None) -> list[Readiness]:
        waits.append(timeout)
        return []

    monkeypatch.setattr(rig.backend, "poll", poll)
    loop_owner.work = cast(Any, Ending())
    loop_owner.take()
    loop_owner.give_up()
    assert loop_owner.wait(told, timeout=None, hurry=False)
    assert waits == [0.0]


def test_a_callers_turn_that_breaks_off_is_the_last_and_lets_the_thread_look() -> None:
    cluster = ScriptedCluster()
    cluster.add(1)
    rig = SenderRig(cluster)
    rig.sender.network.interruptible = True
    loop_owner = rig.sender.loop_owner
    work = loop_owner.work = cast(Any, Mistaken())
    loop_owner.take()
    loop_owner.give_up()  # the thread has begun, and rests
    assert not loop_owner.wait(Latch(), timeout=0.001, hurry=False)
    assert work.turns == 1
    # Before the thread has come to end the producer, another caller begins to wait.
    assert not loop_owner.wait(Latch(), timeout=0.001, hurry=False)
    assert work.turns == 1
    loop_owner.rest()  # returns at once, for it was woken
    assert loop_owner.wanted
