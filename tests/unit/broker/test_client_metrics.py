"""What the embedded broker asks of clients' metrics, and which pushes it takes."""

from __future__ import annotations

import gzip
import uuid
from typing import Any

import pytest

from kprod.broker.client_metrics import (
    ClientMetrics,
    ClientMetricsPush,
    ClientMetricsSubscription,
)
from kprod.errors import BrokerError
from tests.support.fake_clock import FakeClock

MINUTE = ClientMetricsSubscription(metrics=("a.",), push_interval_ms=60_000, max_bytes=100)


class Rig:
    """One client of a broker that asks for pushes each minute."""

    def __init__(self) -> None:
        self.clock = FakeClock()
        self.metrics = ClientMetrics()
        self.metrics.subscribe(MINUTE)
        self.own_id, self.wanted = self.metrics.ask(None, self.clock)

    def push(self, **changed: Any) -> None:
        subscription_id = changed.pop("subscription_id", self.wanted.subscription_id)
        push = ClientMetricsPush(self.own_id, "me", False, 0, b"m")._replace(**changed)
        self.metrics.push(push, subscription_id, self.clock)

    def refused(self, **changed: Any) -> int:
        with pytest.raises(BrokerError) as raised:
            self.push(**changed)
        return raised.value.code


@pytest.fixture
def rig() -> Rig:
    return Rig()


def test_nothing_is_offered_before_somebody_subscribes() -> None:
    metrics = ClientMetrics()
    assert not metrics.offered
    with pytest.raises(BrokerError) as raised:
        metrics.ask(None, FakeClock())
    assert raised.value.code == 35


def test_a_client_is_given_an_id_once(rig: Rig) -> None:
    rig.clock.advance(60)
    assert rig.metrics.ask(rig.own_id, rig.clock) == (rig.own_id, MINUTE)
    assert rig.metrics.ask(None, rig.clock)[0] != rig.own_id


def test_a_client_that_asks_too_often_is_throttled(rig: Rig) -> None:
    with pytest.raises(BrokerError) as raised:
        rig.metrics.ask(rig.own_id, rig.clock)
    assert raised.value.code == 89


def test_pushes_are_kept_uncompressed(rig: Rig) -> None:
    rig.push(codec=1, metrics=gzip.compress(b"metrics"))
    rig.push(terminating=True)
    assert [(push.metrics, push.terminating) for push in rig.metrics.await_pushes(2)] == [
        (b"metrics", False),
        (b"m", True),
    ]
    assert rig.refused() == 42, "it has ended"


def test_pushes_come_no_faster_than_they_are_wanted(rig: Rig) -> None:
    rig.push()
    rig.clock.advance(59)
    assert rig.refused() == 89
    rig.clock.advance(60)
    rig.push()
    assert len(rig.metrics.pushes) == 2


def test_another_subscription_is_told_to_those_who_push_by_the_old_one(rig: Rig) -> None:
    rig.metrics.subscribe(ClientMetricsSubscription())
    assert rig.refused() == 117
    _, wanted = rig.metrics.ask(rig.own_id, rig.clock)  # at once
    rig.push(subscription_id=wanted.subscription_id)


@pytest.mark.parametrize(
    ("changed", "code"),
    [
        ({"instance_id": uuid.UUID(int=1)}, 42),
        ({"codec": 7}, 76),
        ({"codec": 1, "metrics": b"no gzip"}, 87),
        ({"metrics": b"m" * 101}, 118),
        ({"codec": 1, "metrics": gzip.compress(b"m" * 200)}, 87),
    ],
)
def test_refusals(rig: Rig, changed: dict[str, Any], code: int) -> None:
    assert rig.refused(**changed) == code
    assert rig.metrics.pushes == []
