"""A broker that does not offer what a producer needs is left alone, and asked again later."""

from __future__ import annotations

import random

import pytest

from kprod.wire.versions import ApiKey
from tests.support.scripted_cluster import OFFERED, ScriptedBroker
from tests.support.sender_rig import SenderRig

NEEDED = [ApiKey.METADATA, ApiKey.PRODUCE, ApiKey.INIT_PRODUCER_ID]


@pytest.mark.parametrize("missing", NEEDED)
def test_a_garbled_handshake_costs_no_record(
    broker: ScriptedBroker, missing: ApiKey, caplog: pytest.LogCaptureFixture
) -> None:
    rig = SenderRig(broker.cluster)
    future = rig.queue()
    del broker.offered[missing]
    assert not rig.run(lambda: future.is_done, seconds=20)
    assert f"broker-1:9092: {missing.name}: the broker does not offer it" in caplog.text
    assert broker.count(missing) == 0
    broker.offered.update(OFFERED)
    assert rig.run(future.succeeded, seconds=5)


def test_a_version_that_does_not_fit_the_request_costs_no_record(broker: ScriptedBroker) -> None:
    rig = SenderRig(broker.cluster)
    broker.offered[ApiKey.PRODUCE] = (13, 13)  # these name topics by ids, and there are none
    rig.know("t")
    futures = [rig.queue() for _ in range(3)]
    assert not rig.run(lambda: any(future.is_done for future in futures), seconds=20)
    assert broker.connections < 60
    broker.offered.update(OFFERED)
    assert rig.run(lambda: all(future.succeeded() for future in futures), seconds=5)


@pytest.mark.parametrize(
    "order", ["controller:9093,broker-1:9092", "broker-1:9092,controller:9093"]
)
def test_an_address_without_metadata_is_passed_by(
    broker: ScriptedBroker, order: str, caplog: pytest.LogCaptureFixture
) -> None:
    cluster = broker.cluster
    controller = ScriptedBroker(cluster, 9, "controller", 9093)
    controller.offered = {ApiKey.API_VERSIONS: (0, 4)}
    cluster.listeners["controller", 9093] = controller.accept
    for seed in range(12):
        rig = SenderRig(cluster, bootstrap_servers=order, rng=random.Random(seed))
        future = rig.queue()
        started = rig.clock.now
        assert rig.run(future.succeeded, seconds=2), f"{seed}: {rig.clock.now - started} s"
    assert controller.connections > 0
    assert "is this the address of a controller?" in caplog.text
