"""When the known brokers lead nowhere, the way back begins at the bootstrap addresses."""

from __future__ import annotations

from typing import Any

import pytest

from kprod.wire.versions import ApiKey
from tests.support.scripted_cluster import (
    Answer,
    ScriptedCluster,
    silence,
    telling,
)
from tests.support.sender_rig import SenderRig

TRIGGER = 20.0


def no_brokers(error: int = 0) -> Answer:
    """A Metadata answer that tells of nobody."""
    return telling(cluster_id=None, controller_id=-1, error_code=error)


class MovedCluster:
    """A producer that knows the old cluster while the bootstrap address leads to the new one."""

    def __init__(self, **options: Any) -> None:
        self.old = ScriptedCluster(topics={"t": [1, 1]}, leader_epoch=9)
        self.new = ScriptedCluster(topics={"t": [7, 7]}, leader_epoch=1)
        self.one, self.seven = self.old.add(1, "old"), self.new.add(7, "new")
        self.one.offered[ApiKey.METADATA] = (4, 13)
        listeners = self.old.listeners
        listeners["boot", 9092] = self.one.accept
        self.rig = SenderRig(
            self.old,
            bootstrap_servers="boot:9092",
            metadata_recovery_rebootstrap_trigger_ms=int(TRIGGER * 1000),
            delivery_timeout_ms=3_600_000,
            **options,
        )
        self.rig.know("t")
        assert self.rig.run(self.rig.queue().succeeded)
        listeners["boot", 9092] = listeners["new", 9092] = self.seven.accept
        self.rig.sender.metadata.request_update()

    def found(self) -> bool:
        return 7 in self.rig.sender.metadata.snapshot.brokers


def test_brokers_that_tell_nothing_are_left_after_a_while() -> None:
    moved = MovedCluster()
    moved.one.next(ApiKey.METADATA, *[no_brokers()] * 1000)
    assert not moved.rig.run(moved.found, seconds=TRIGGER - 1)
    assert moved.rig.run(moved.found, seconds=2)
    assert moved.rig.run(moved.rig.queue(b"later").succeeded, seconds=1)
    assert moved.new.values("t") == [b"later"]


def test_another_cluster_behind_the_same_address_is_warned_of(
    caplog: pytest.LogCaptureFixture,
) -> None:
    moved = MovedCluster(client_id="orders")
    moved.new.cluster_id = "second"
    moved.one.next(ApiKey.METADATA, no_brokers(129))
    assert caplog.messages == []
    assert moved.rig.run(moved.found, seconds=1)
    assert caplog.messages == [
        "orders: asking the bootstrap servers about the cluster: a broker asks for it",
        "orders: another cluster answers, second, no longer scripted:"
        " do the bootstrap servers lead to both?",
    ]


@pytest.mark.parametrize("error", [0, 129])
def test_without_that_strategy_the_known_brokers_are_kept(error: int) -> None:
    moved = MovedCluster(metadata_recovery_strategy="none")
    moved.one.next(ApiKey.METADATA, *[no_brokers(error)] * 1000)
    assert not moved.rig.run(moved.found, seconds=5 * TRIGGER)


@pytest.mark.parametrize(("strategy", "found"), [("rebootstrap", True), ("none", False)])
def test_brokers_that_cannot_be_reached_are_not_waited_for(strategy: str, *, found: bool) -> None:
    moved = MovedCluster(metadata_recovery_strategy=strategy)
    del moved.old.listeners["old", 9092]
    moved.rig.backend.connections[0].cut()
    assert moved.rig.run(moved.found, seconds=5) == found


def test_what_was_on_its_way_is_sent_again() -> None:
    moved = MovedCluster()
    moved.one.next(ApiKey.PRODUCE, *[silence] * 1000)
    future = moved.rig.queue(b"on its way")
    moved.rig.run(lambda: moved.one.count(ApiKey.PRODUCE) == 2)
    moved.one.next(ApiKey.METADATA, *[no_brokers()] * 1000)
    assert moved.rig.run(lambda: future.is_done)
    assert future.succeeded()
    assert moved.new.values("t") == [b"on its way"]


def test_an_answer_ends_the_count() -> None:
    moved = MovedCluster(metadata_max_age_ms=1_000)
    for _ in range(5):
        moved.one.next(ApiKey.METADATA, *[no_brokers()] * 10)  # for some seconds
        moved.rig.run(lambda: False, seconds=TRIGGER / 2)
    assert not moved.found()
