"""Deadlines and idle senders, independent of the wall clock."""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kprod.sender.deadlines import FOREVER, Deadlines
from kprod.wire.versions import ApiKey
from tests.support.fake_clock import FakeClock
from tests.support.scripted_cluster import ScriptedBroker, ScriptedCluster, cut, refuse, silence
from tests.support.sender_rig import SenderRig, rig_of
from tests.support.steady_random import SteadyRandom


class Owner:
    """Records when it fires, and then sets ``again`` as its next deadline."""

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


@given(
    st.lists(
        st.one_of(
            st.tuples(st.integers(0, 5), st.one_of(st.integers(0, 9), st.just(FOREVER))),
            st.tuples(st.just(-1), st.integers(0, 9)),
        ),
        max_size=60,
    )
)
def test_deadlines_match_a_simple_table_of_times(steps: list[tuple[int, float]]) -> None:
    """A step sets the deadline of an owner, or, with -1, fires all that are due."""
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


def iterations_in(rig: SenderRig, seconds: float) -> int:
    """Iterations of the sender in that time."""
    before = rig.turns
    rig.run(lambda: False, seconds, most_turns=20_000)
    return rig.turns - before


def test_an_idle_sender_rarely_wakes(broker: ScriptedBroker) -> None:
    rig = rig_of(broker.cluster, metadata_max_age_ms=300_000, connections_max_idle_ms=540_000)
    assert rig.run(rig.queue().succeeded)
    assert iterations_in(rig, 3600) < 150


def test_an_unused_producer_rarely_wakes_and_never_connects(broker: ScriptedBroker) -> None:
    rig = SenderRig(broker.cluster)
    assert iterations_in(rig, 3600) < 50
    assert broker.connections == 0


def test_an_idle_connection_is_closed_and_reopened_when_needed(broker: ScriptedBroker) -> None:
    rig = rig_of(broker.cluster, connections_max_idle_ms=5_000)
    assert rig.run(rig.queue().succeeded)
    rig.run(lambda: not rig.backend.connections, seconds=10)
    assert rig.backend.connections == []
    assert rig.run(rig.queue().succeeded, seconds=1)
    assert broker.connections == 2
    assert rig.metrics.connections_lost == 0


def test_repeatedly_lost_idle_connections_are_logged_once(
    broker: ScriptedBroker, caplog: pytest.LogCaptureFixture
) -> None:
    rig = rig_of(broker.cluster)
    for lost in range(1, 20):
        assert rig.run(rig.queue().succeeded)
        for connection in list(rig.backend.connections):
            connection.hang_up()
        rig.run(lambda: not rig.backend.connections, seconds=2)
        logged = caplog.text.count("the broker closed the connection")
        assert logged == (0 if lost == 1 else 1)


def test_records_of_a_lost_connection_are_resent_on_reconnect(broker: ScriptedBroker) -> None:
    rig = rig_of(broker.cluster, reconnect_backoff_ms=50, retry_backoff_ms=1000)
    started = rig.clock.now
    for _ in range(20):
        broker.next(ApiKey.PRODUCE, cut)
        assert rig.run(rig.queue().succeeded)
    assert rig.clock.now - started < 20 * 0.07


def test_a_silent_broker_wakes_the_sender_only_at_timeouts(broker: ScriptedBroker) -> None:
    broker.next(ApiKey.PRODUCE, *[silence] * 100)
    rig = rig_of(broker.cluster, delivery_timeout_ms=900_000, request_timeout_ms=30_000)
    rig.queue()
    assert iterations_in(rig, 600) < 20 * 20


def test_a_long_throttle_time_is_in_the_log_and_the_errors_of_waiting_records(
    broker: ScriptedBroker, caplog: pytest.LogCaptureFixture
) -> None:
    rig = rig_of(broker.cluster, delivery_timeout_ms=60_000)
    broker.throttle_ms = 240_000
    assert rig.run(rig.queue().succeeded)
    future = rig.queue()
    assert rig.run(lambda: future.is_done)
    text = "broker 1 at broker-1:9092 asks for"
    assert caplog.text.count(f"{text} 240 s without requests (throttle_time_ms)") == 1
    assert f"after 0 attempts; the last error was: {text} 180 s without" in str(future.exception)


class WildClock(FakeClock):
    """Its wall clock jumps by up to fifteen days in both directions."""

    def __init__(self) -> None:
        super().__init__()
        self._random = random.Random(7)

    def wall_ms(self) -> int:
        return super().wall_ms() + self._random.randint(-15, 15) * 24 * 3600 * 1000


def timeline(clock: FakeClock) -> list[float]:
    """Times at which a producer did what depends on time."""
    broker = ScriptedCluster(topics={"t": [1]}).add(1)
    rig = SenderRig(
        broker.cluster,
        clock=clock,
        rng=SteadyRandom(),
        linger_ms=50,
        request_timeout_ms=1_000,
        delivery_timeout_ms=5_000,
        metadata_max_age_ms=60_000,
        connections_max_idle_ms=20_000,
    )
    rig.know("t")
    times: list[float] = []

    def record(until: Callable[[], bool]) -> None:
        assert rig.run(until)
        times.append(clock.now)

    record(rig.queue().succeeded)  # linger
    broker.next(ApiKey.PRODUCE, refuse(7), refuse(7))
    record(rig.queue().succeeded)  # back-off
    broker.next(ApiKey.PRODUCE, silence)
    record(rig.queue().succeeded)  # request timeout
    broker.next(ApiKey.PRODUCE, *[cut] * 5)
    record(rig.queue().succeeded)  # reconnecting
    broker.next(ApiKey.PRODUCE, *[silence] * 5)
    record(rig.queue().failed)  # delivery timeout
    record(rig.queue().succeeded)  # after the request in flight
    record(lambda: not rig.sender.network.connected)  # idle connections
    asked = broker.count(ApiKey.METADATA)
    record(lambda: broker.count(ApiKey.METADATA) > asked)  # age of metadata
    return times


def test_nothing_but_timestamps_depends_on_the_wall_clock() -> None:
    steady, wild = timeline(FakeClock()), timeline(WildClock())
    assert steady == wild
    assert steady == sorted(set(steady)), "a step took no time"
