"""Whatever happens, the sender wakes no more often than it must, and goes on when it can."""

from __future__ import annotations

import pytest

from kprod.wire.versions import ApiKey
from tests.support.scripted_cluster import ScriptedBroker, cut, silence
from tests.support.sender_rig import SenderRig, rig_of


def turns_in(rig: SenderRig, seconds: float) -> int:
    """How often the sender looks around in that time."""
    before = rig.turns
    rig.run(lambda: False, seconds, most_turns=20_000)
    return rig.turns - before


def test_an_idle_sender_looks_around_once_in_a_while(broker: ScriptedBroker) -> None:
    rig = rig_of(broker.cluster, metadata_max_age_ms=300_000, connections_max_idle_ms=540_000)
    assert rig.run(rig.queue().succeeded)
    assert turns_in(rig, 3600) < 150


def test_a_producer_that_was_never_used_does_nothing(broker: ScriptedBroker) -> None:
    rig = SenderRig(broker.cluster)
    assert turns_in(rig, 3600) < 50
    assert broker.connections == 0


def test_an_idle_connection_is_closed_and_made_again_when_needed(broker: ScriptedBroker) -> None:
    rig = rig_of(broker.cluster, connections_max_idle_ms=5_000)
    assert rig.run(rig.queue().succeeded)
    rig.run(lambda: not rig.backend.connections, seconds=10)
    assert rig.backend.connections == []
    assert rig.run(rig.queue().succeeded, seconds=1)
    assert broker.connections == 2
    assert rig.metrics.connections_lost == 0


def test_idle_connections_that_are_lost_again_and_again_are_told_of(
    broker: ScriptedBroker, caplog: pytest.LogCaptureFixture
) -> None:
    rig = rig_of(broker.cluster)
    for lost in range(1, 20):
        assert rig.run(rig.queue().succeeded)
        for connection in list(rig.backend.connections):
            connection.hang_up()
        rig.run(lambda: not rig.backend.connections, seconds=2)
        told = caplog.text.count("the broker closed the connection")
        assert told == (0 if lost == 1 else 1), "one alone is not told, nor are they all"


def test_what_a_broken_connection_carried_waits_for_no_more_than_the_next_one(
    broker: ScriptedBroker,
) -> None:
    rig = rig_of(broker.cluster, reconnect_backoff_ms=50, retry_backoff_ms=1000)
    started = rig.clock.now
    for _ in range(20):
        broker.next(ApiKey.PRODUCE, cut)
        assert rig.run(rig.queue().succeeded)
    assert rig.clock.now - started < 20 * 0.07


def test_a_handshake_that_breaks_every_time_is_tried_at_the_pace_of_the_back_off(
    broker: ScriptedBroker,
) -> None:
    broker.next(ApiKey.API_VERSIONS, *[cut] * 2000)
    rig = SenderRig(broker.cluster)
    rig.sender.metadata.used({"t": rig.clock.now})
    rig.sender.metadata.request_update()
    assert turns_in(rig, 60) < 5 * 75
    assert 50 < broker.connections < 75


def test_a_silent_broker_costs_a_turn_per_time_limit(broker: ScriptedBroker) -> None:
    broker.next(ApiKey.PRODUCE, *[silence] * 100)
    rig = rig_of(broker.cluster, delivery_timeout_ms=900_000, request_timeout_ms=30_000)
    rig.queue()
    assert turns_in(rig, 600) < 20 * 20


def test_a_long_silence_is_told_in_the_log_and_by_the_records_that_wait(
    broker: ScriptedBroker, caplog: pytest.LogCaptureFixture
) -> None:
    rig = rig_of(broker.cluster, delivery_timeout_ms=60_000)
    broker.throttle_ms = 240_000
    assert rig.run(rig.queue().succeeded)
    future = rig.queue()
    assert rig.run(lambda: future.is_done)
    said = "broker 1 at broker-1:9092 asks for"
    assert caplog.text.count(f"{said} 240 s without requests (throttle_time_ms)") == 1
    assert f"after 0 attempts; the last error was: {said} 180 s without" in str(future.exception)
