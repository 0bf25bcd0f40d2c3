"""Client metrics in the embedded broker: subscriptions and accepted pushes."""

from __future__ import annotations

import gzip
import uuid
from collections.abc import Callable
from typing import Any

import pytest

from kprod.broker.client_metrics import ClientMetrics, ClientMetricsPush, ClientMetricsSubscription
from kprod.errors import BrokerError
from tests.support.fake_clock import FakeClock

MINUTE = ClientMetricsSubscription(metrics=("a.",), push_interval_ms=60_000, max_bytes=100)


class Rig:
    """One client with a subscription to a push each minute."""

    def __init__(self) -> None:
        self.clock = FakeClock()
        self.metrics = ClientMetrics()
        self.metrics.subscribe(MINUTE)
        self.own_id, self.subscription = self.metrics.ask(None, self.clock)

    def push(self, **changed: Any) -> int:
        """The error code, or 0."""
        subscription_id = changed.pop("subscription_id", self.subscription.subscription_id)
        push = ClientMetricsPush(self.own_id, "me", False, 0, b"m")._replace(**changed)
        return code(lambda: self.metrics.push(push, subscription_id, self.clock))


def code(act: Callable[[], object]) -> int:
    try:
        act()
    except BrokerError as error:
        return error.code
    return 0


@pytest.fixture
def rig() -> Rig:
    return Rig()


def test_a_client_gets_one_id_and_requests_too_often_are_throttled(rig: Rig) -> None:
    assert code(lambda: rig.metrics.ask(rig.own_id, rig.clock)) == 89
    rig.clock.advance(60)
    assert rig.metrics.ask(rig.own_id, rig.clock) == (rig.own_id, MINUTE)
    assert rig.metrics.ask(None, rig.clock)[0] != rig.own_id
    assert code(lambda: ClientMetrics().ask(None, rig.clock)) == 35, "there is no subscription"


def test_pushes_are_stored_uncompressed_until_the_terminating_one(rig: Rig) -> None:
    assert rig.push(codec=1, metrics=gzip.compress(b"metrics")) == 0
    assert rig.push(terminating=True) == 0
    assert [(push.metrics, push.terminating) for push in rig.metrics.await_pushes(2)] == [
        (b"metrics", False),
        (b"m", True),
    ]
    assert rig.push() == 42


def test_pushes_faster_than_the_interval_are_throttled(rig: Rig) -> None:
    codes = []
    for seconds in (0, 59, 60):
        rig.clock.advance(seconds)
        codes.append(rig.push())
    assert codes == [0, 89, 0]
    assert len(rig.metrics.pushes) == 2


def test_a_push_with_an_old_subscription_id_is_refused(rig: Rig) -> None:
    rig.metrics.subscribe(ClientMetricsSubscription())
    assert rig.push() == 117
    _, subscription = rig.metrics.ask(rig.own_id, rig.clock)  # without waiting
    assert rig.push(subscription_id=subscription.subscription_id) == 0


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
def test_invalid_pushes_are_refused(rig: Rig, changed: dict[str, Any], code: int) -> None:
    assert rig.push(**changed) == code
    assert rig.metrics.pushes == []
