"""Mistakes of our own in the middle of a turn: records still come to their end."""

from __future__ import annotations

import random

import pytest

from kprod.errors import DeliveryTimeoutError
from tests.support.scripted_cluster import ScriptedCluster
from tests.support.sender_rig import SenderRig


class FailingDice(random.Random):
    """A source of random numbers that may fail: what draws them fails with it."""

    failing = False

    def random(self) -> float:
        if self.failing:
            raise ArithmeticError("no more numbers")
        return super().random()


def test_a_turn_that_fails_before_anything_is_sent_still_ends_what_is_late() -> None:
    """Asking for metadata fails, turn after turn, and it comes before everything else."""
    cluster = ScriptedCluster(topics={"t": [1]})
    cluster.add(1)
    dice = FailingDice(1)
    rig = SenderRig(cluster, rng=dice)
    rig.know("t")
    dice.failing = True
    rig.sender.metadata.request_update()  # there is a pause before it, drawn by the dice
    future = rig.queue()
    for _ in range(3):
        with pytest.raises(ArithmeticError):
            rig.sender.run_once()
        rig.clock.advance(60)
    assert isinstance(future.exception, DeliveryTimeoutError)
    assert rig.sender.finished
