"""Telemetry of a sender: subscriptions, pushes, and the last push at its end."""

from __future__ import annotations

import gzip
from collections.abc import Callable
from typing import Any
from uuid import UUID

import pytest

from kprod.wire.versions import ApiKey
from tests.support.metrics_data import read_metrics, read_resource
from tests.support.scripted_cluster import (
    Answer,
    ReceivedRequest,
    ScriptedBroker,
    ScriptedCluster,
    cut,
    frame,
    silence,
    telling,
)
from tests.support.sender_rig import SenderRig, rig_of

ASK, PUSH = ApiKey.GET_TELEMETRY_SUBSCRIPTIONS, ApiKey.PUSH_TELEMETRY
OWN_ID = UUID("12345678-9abc-def0-0123-456789abcdef")
NONE, GZIP, UNHEARD_OF = 0, 1, 99


def subscription(
    *metrics: str, codecs: tuple[int, ...] = (), delta: bool = True, error: int = 0
) -> Answer:
    """An answer to GetTelemetrySubscriptions, with an interval of a minute."""

    def answer(_: ScriptedBroker, request: ReceivedRequest) -> bytes:
        return frame(
            request,
            error_code=error,
            client_instance_id=None if request.body.client_instance_id else OWN_ID,
            subscription_id=7,
            accepted_compression_types=codecs,
            push_interval=60_000,
            telemetry_max_bytes=100_000,
            delta_temporality=delta,
            requested_metrics=metrics,
        )

    return answer


def taken(error: int = 0, throttle_ms: int = 0) -> Answer:
    """An answer to PushTelemetry."""
    return telling(error_code=error, throttle_time=throttle_ms)


@pytest.fixture
def broker() -> ScriptedBroker:
    made = ScriptedCluster(topics={"t": [1]}).add(1)
    made.offered |= {ASK: (0, 0), PUSH: (0, 0)}
    return made


def requests(broker: ScriptedBroker, api: ApiKey) -> list[Any]:
    return [one.body for one in broker.received if one.api is api]


def received(broker: ScriptedBroker, api: ApiKey, count: int) -> Callable[[], bool]:
    return lambda: broker.count(api) >= count


def subscribed(broker: ScriptedBroker, *answers: Answer, **options: Any) -> SenderRig:
    """A rig whose broker subscribes to every metric, and answers pushes like this."""
    broker.next(ASK, subscription("*"))
    broker.next(PUSH, *answers)
    rig = rig_of(broker.cluster, **options)
    assert rig.run(received(broker, ASK, 1))
    return rig


def test_no_telemetry_request_is_sent_when_it_is_disabled(broker: ScriptedBroker) -> None:
    rig = rig_of(broker.cluster, enable_metrics_push=False)
    assert rig.run(rig.queue().succeeded)
    assert not rig.run(lambda: False, seconds=400)
    assert broker.count(ASK) == broker.count(PUSH) == 0


def test_metrics_are_pushed_at_the_interval_of_the_subscription(broker: ScriptedBroker) -> None:
    broker.next(ASK, subscription("org.apache.kafka.producer.record.send"))
    broker.next(PUSH, *[taken()] * 3)
    rig = rig_of(broker.cluster)
    assert rig.run(rig.queue().succeeded)
    began = rig.clock.now
    assert rig.run(received(broker, PUSH, 1))
    assert 29 < rig.clock.now - began < 91, "half to one and a half times a minute"
    assert rig.run(rig.queue().succeeded)
    first = rig.clock.now
    assert rig.run(received(broker, PUSH, 3))
    assert 119 < rig.clock.now - first < 121
    assert [ask.client_instance_id for ask in requests(broker, ASK)] == [None]
    pushes = requests(broker, PUSH)
    assert {push.client_instance_id for push in pushes} == {OWN_ID}
    assert {(push.subscription_id, push.terminating) for push in pushes} == {(7, False)}
    totals = [
        [one.value for one in read_metrics(push.metrics) if one.kind == "delta"] for push in pushes
    ]
    assert totals == [[1], [1], [0]]


def test_metrics_are_compressed_by_the_first_common_codec(broker: ScriptedBroker) -> None:
    broker.next(ASK, subscription("*", codecs=(UNHEARD_OF, GZIP, 4)))
    broker.next(PUSH, taken())
    rig = rig_of(broker.cluster, enable_idempotence=True)
    assert rig.run(received(broker, PUSH, 1))
    (push,) = requests(broker, PUSH)
    assert push.compression_type == GZIP
    metrics = read_metrics(gzip.decompress(push.metrics))
    assert "org.apache.kafka.producer.buffer.total.bytes" in [one.name for one in metrics]
    assert read_resource(gzip.decompress(push.metrics)) == {}


def test_a_lost_answer_does_not_affect_records_or_later_pushes(broker: ScriptedBroker) -> None:
    broker.next(ASK, cut, subscription("*"))
    broker.next(PUSH, cut, taken())
    rig = rig_of(broker.cluster)
    assert rig.run(received(broker, ASK, 1))
    assert rig.run(rig.queue().succeeded)  # which connects again
    assert rig.run(received(broker, PUSH, 1))
    assert rig.run(rig.queue().succeeded)
    assert rig.run(received(broker, PUSH, 2))


def test_pushes_continue_after_one_that_could_not_be_written(broker: ScriptedBroker) -> None:
    rig = subscribed(broker, taken())
    (connection,) = rig.backend.connections
    began = rig.clock.now

    def broken_when_due() -> bool:
        if rig.clock.now > began + 31:  # behind the time limit of the request
            connection.cut()
        return not connection.connected

    assert rig.run(broken_when_due)
    assert rig.run(rig.queue().succeeded)  # which connects again
    assert rig.run(received(broker, PUSH, 1))


def test_no_connection_is_opened_for_telemetry(broker: ScriptedBroker) -> None:
    rig = subscribed(broker, connections_max_idle_ms=5_000)
    connections = broker.connections
    rig.sender.metadata.close()  # which would connect as well
    assert not rig.run(lambda: False, seconds=200)
    assert broker.count(PUSH) == 0
    assert broker.connections == connections


def ready_to_close(rig: SenderRig) -> Callable[[], bool]:
    return lambda: rig.sender.ready_to_close(rig.clock.now)


def test_the_last_push_is_marked_as_terminating(broker: ScriptedBroker) -> None:
    rig = subscribed(broker, taken())
    assert rig.run(rig.queue().succeeded)
    ended = rig.clock.now
    assert rig.run(ready_to_close(rig))
    assert [push.terminating for push in requests(broker, PUSH)] == [True]
    assert rig.clock.now - ended < 0.5
    assert ready_to_close(rig)()
    assert not rig.run(lambda: False, seconds=200)
    assert broker.count(PUSH) == 1


def test_closing_waits_half_a_second_for_an_unanswered_last_push(broker: ScriptedBroker) -> None:
    rig = subscribed(broker, silence)
    assert rig.run(rig.queue().succeeded)
    ended = rig.clock.now
    assert rig.run(ready_to_close(rig))
    assert 0.5 <= rig.clock.now - ended < 0.6


@pytest.mark.parametrize("answers", [(), (subscription(),), (subscription("*", error=42),)])
def test_closing_does_not_wait_without_a_subscription(
    broker: ScriptedBroker, answers: tuple[Answer, ...]
) -> None:
    if answers:
        broker.next(ASK, *answers)
    else:
        del broker.offered[ASK]
    rig = rig_of(broker.cluster)
    assert rig.run(rig.queue().succeeded)
    assert not rig.run(lambda: False, seconds=1)
    assert ready_to_close(rig)()
    assert broker.count(PUSH) == 0
