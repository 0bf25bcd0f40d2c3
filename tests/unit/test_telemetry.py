"""When a producer asks what to tell of its metrics, when it tells, and what refusals change."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from kprod.errors import ConnectionLost
from kprod.sender.connection_log import ConnectionLog
from kprod.sender.deadlines import Deadlines
from kprod.telemetry import SHORTEST_INTERVAL, Telemetry
from kprod.wire.telemetry import NO_ID, PushReply, Subscription
from kprod.wire.versions import ApiKey, ApiVersions
from tests.support.fake_clock import FakeClock

OWN_ID = bytes(range(16))
BOTH = ApiVersions({ApiKey.GET_TELEMETRY_SUBSCRIPTIONS: (0, 0), ApiKey.PUSH_TELEMETRY: (0, 3)})
FOREVER = float("inf")
LOST = ConnectionLost("it is gone")


def subscription(
    error: int = 0,
    *,
    metrics: tuple[str, ...] = ("*",),
    interval_ms: int = 60_000,
    instance_id: bytes | None = OWN_ID,
) -> Subscription:
    return Subscription(error, instance_id, 7, (), interval_ms, 1_000, True, metrics, 0)


def unoffered(jitter: float = 1.5) -> Telemetry:
    """One that no broker takes yet, and that sends nothing."""

    def draw(lowest: float, highest: float) -> float:
        assert (lowest, highest) == (0.5, 1.5)
        return jitter

    network = SimpleNamespace(log=ConnectionLog("telemetry"), usable_for=lambda *_: None)
    sender: Any = SimpleNamespace(
        network=network, deadlines=Deadlines(), clock=FakeClock(), loop_owner=None
    )
    measure: Any = None
    return Telemetry(sender, measure, {}, draw)


def telemetry(jitter: float = 1.5) -> Telemetry:
    """One that some broker takes, and whose jitter is what it is."""
    made = unoffered(jitter)
    made.on_api_versions(BOTH)
    return made


def subscribed(at: float = 10.0, *, jitter: float = 1.5) -> Telemetry:
    made = telemetry(jitter)
    made.subscribed(subscription(), at)
    return made


def due_in(made: Telemetry, now: float) -> float:
    return max(0.0, made.due_at - now)


@pytest.mark.parametrize(
    "ranges",
    [
        {},
        {ApiKey.GET_TELEMETRY_SUBSCRIPTIONS: (0, 0)},
        {ApiKey.PUSH_TELEMETRY: (0, 0)},
        {ApiKey.GET_TELEMETRY_SUBSCRIPTIONS: (1, 2), ApiKey.PUSH_TELEMETRY: (0, 0)},
        {ApiKey.GET_TELEMETRY_SUBSCRIPTIONS: (0, 0), ApiKey.PUSH_TELEMETRY: (1, 2)},
    ],
)
def test_nothing_is_due_until_a_broker_takes_both_requests(
    ranges: dict[int, tuple[int, int]],
) -> None:
    made = unoffered()
    made.on_api_versions(ApiVersions(ranges))
    assert due_in(made, 5) == FOREVER
    made.on_api_versions(BOTH)
    assert due_in(made, 5) == 0
    made.on_api_versions(ApiVersions({}))  # another broker, of an older release
    assert due_in(made, 5) == 0


def test_the_id_is_the_first_that_was_given() -> None:
    made = telemetry()
    assert made.instance_id == NO_ID
    assert not made.identified.is_open
    made.subscribed(subscription(), 0)
    assert made.identified.is_open
    made.subscribed(subscription(instance_id=None), 1)
    assert made.instance_id == OWN_ID


def test_an_answer_without_an_id_ends_it() -> None:
    made = telemetry()
    made.subscribed(subscription(instance_id=None), 0)
    assert made.over


@pytest.mark.parametrize("jitter", [0.5, 1.5])
def test_the_first_push_is_spread_and_the_others_keep_the_interval(jitter: float) -> None:
    made = subscribed(10, jitter=jitter)
    assert due_in(made, 10) == 60 * jitter
    made.pushed(PushReply(0, 0), 200, last=False)
    assert due_in(made, 200) == 60
    assert due_in(made, 230) == 30
    assert made.subscription is not None


def test_who_wants_nothing_is_asked_again_after_the_interval() -> None:
    made = telemetry()
    made.subscribed(subscription(metrics=()), 10)
    assert made.subscription is None
    assert due_in(made, 10) == 60


@pytest.mark.parametrize(("interval_ms", "seconds"), [(1, SHORTEST_INTERVAL), (0, 300), (-1, 300)])
def test_an_interval_is_at_least_the_shortest_that_apache_kafka_allows(
    interval_ms: int, seconds: float
) -> None:
    made = telemetry(0.5)
    made.subscribed(subscription(interval_ms=interval_ms), 10)
    assert due_in(made, 10) == pytest.approx(seconds / 2)
    made.pushed(PushReply(0, 0), 11, last=False)
    assert due_in(made, 11) == pytest.approx(seconds)


@pytest.mark.parametrize(
    ("codes", "due"),
    [
        ((117, 76), 0),  # the subscription has changed
        ((118, 89, -1, 15, 31), 60),
        ((35, 42, 87), FOREVER),  # asking again cannot change it
    ],
)
def test_after_a_refusal_the_subscription_is_asked_for(codes: tuple[int, ...], due: float) -> None:
    for code in codes:
        made = subscribed()
        made.pushed(PushReply(code, 0), 100, last=False)
        assert made.subscription is None
        assert due_in(made, 100) == due
        other = telemetry() if due == FOREVER else made
        other.subscribed(subscription(code), 100)  # to a question it is no reason to hurry
        assert due_in(other, 100) == max(due, 60)
        assert other.over is (due == FOREVER)
        assert other.identified.is_open  # nobody waits for what will not come


def test_a_lost_question_is_asked_again_and_a_lost_push_waits_for_the_next() -> None:
    made = telemetry()
    made.failed(LOST, 100, sent=True)
    assert due_in(made, 100) == 30
    made = subscribed()
    made.failed(LOST, 100, sent=True)
    assert made.subscription is not None
    assert due_in(made, 100) == 60


def test_a_push_that_was_on_its_way_is_followed_by_the_last() -> None:
    made = subscribed()
    made.leave(11)
    made.pushed(PushReply(0, 0), 12, last=False)
    assert not made.over
    assert due_in(made, 12) == 0


@pytest.mark.parametrize("code", [117, 118, 42])
def test_a_refusal_at_the_end_is_the_end(code: int) -> None:
    made = subscribed()
    made.leave(11)
    made.pushed(PushReply(code, 0), 12, last=False)
    assert made.over


def test_who_wants_nothing_is_told_nothing_at_the_end() -> None:
    made = telemetry()
    made.subscribed(subscription(metrics=()), 10)
    made.leave(11)
    assert made.over
    made = subscribed()
    made.leave(11)
    made.failed(LOST, 12, sent=True)
    assert made.over
