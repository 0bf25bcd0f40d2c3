"""Bugs of connections, and of the simulation itself, as the smallest schedules that show them."""

from __future__ import annotations

from tests.simulation.actions import HideBroker, Send
from tests.simulation.broker_actions import Disturb, SlowWires
from tests.simulation.interference import Interference
from tests.simulation.schedule import Schedule
from tests.simulation.setup import Setup
from tests.simulation.world import run


def test_a_broker_that_left_the_list_for_a_moment_keeps_its_back_off() -> None:
    """It came back as one that nothing was known of, and a batch was repeated at once."""
    schedule = Schedule(
        seed=888000650,
        setup=Setup(
            nodes=3, partitions=(1, 2), latency=0.002, window=150, reconnect_backoff_max_ms=100
        ),
        actions=(
            Send(at=0.2698, topic=1, records=4, keys="explicit"),
            SlowWires(at=0.2901, seconds=0.01, factor=500.0),
            HideBroker(at=0.723, node=0, seconds=4.5),
            Send(at=1.1419, topic=0, records=1, size=150, keys="few"),
            Disturb(1.1599, 0, Interference("produce", "cut-request", partition=1), times=3),
            HideBroker(at=1.3766, node=0, seconds=0.1),
        ),
        gentle=True,
    )
    assert not run(schedule).violations
