"""Turns that a caller takes while it waits."""

from __future__ import annotations

import pytest

from kprod.latch import Latch
from tests.support.scripted_cluster import ScriptedCluster
from tests.support.sender_rig import SenderRig


class Mistaken:
    """Work that never comes to anything."""

    finished = True

    def __init__(self) -> None:
        self.turns = 0

    def run_once(self, longest: float) -> None:
        self.turns += 1
        raise ArithmeticError("a mistake in a turn")


def test_turns_that_fail_are_told_once_a_minute(caplog: pytest.LogCaptureFixture) -> None:
    """Whoever waits in a loop would fill the log."""
    cluster = ScriptedCluster()
    cluster.add(1)
    rig = SenderRig(cluster, client_id="orders")
    rig.backend.interruptible = True
    leadership = rig.sender.leadership
    work = leadership.work = Mistaken()
    leadership.take()
    leadership.give_up()  # the thread has begun, and rests
    for pause in (0.0, 59.0, 1.0):
        rig.clock.advance(pause)
        assert not leadership.wait(Latch(), timeout=0.001, hurry=False)
    assert work.turns == 3
    assert [message.splitlines()[0] for message in caplog.messages] == [
        "orders: a turn of the sender failed; its thread goes on"
    ] * 2
    assert "a mistake in a turn" in caplog.text
