"""Requests for the id of an idempotent producer."""

from __future__ import annotations

import pytest

from kprod.errors import BrokerError, DeliveryTimeoutError
from kprod.types import TopicPartition
from kprod.wire.versions import ApiKey
from tests.support.scripted_cluster import Answer, ScriptedBroker, telling
from tests.support.sender_rig import rig_of

TP = TopicPartition("t", 0)


def identity(producer_id: int = 9, epoch: int = 3, error: int = 0) -> Answer:
    """An answer to InitProducerId."""
    return telling(error_code=error, producer_id=producer_id, producer_epoch=epoch)


def test_batches_carry_the_assigned_producer_id(broker: ScriptedBroker) -> None:
    broker.next(ApiKey.INIT_PRODUCER_ID, identity(9, 3))
    rig = rig_of(broker.cluster)
    assert rig.run(rig.queue().succeeded)
    (batch,) = broker.cluster.log[TP]
    assert (batch.producer_id, batch.producer_epoch, batch.base_sequence) == (9, 3, 0)


@pytest.mark.parametrize("code", [7, 14, 15, 16, 41, 51, -1, 42, 47, 60])
def test_a_transient_refusal_is_retried_with_back_off(broker: ScriptedBroker, code: int) -> None:
    broker.next(ApiKey.INIT_PRODUCER_ID, *[identity(-1, -1, code)] * 3)
    rig = rig_of(broker.cluster)
    started = rig.clock.now
    assert rig.run(rig.queue().succeeded)
    assert broker.count(ApiKey.INIT_PRODUCER_ID) == 4
    assert 0.5 < rig.clock.now - started < 1, "100, 200 and 400 ms, with 20 % jitter"


def test_the_reason_for_a_missing_id_is_logged_once_and_in_the_record_error(
    broker: ScriptedBroker, caplog: pytest.LogCaptureFixture
) -> None:
    broker.next(ApiKey.INIT_PRODUCER_ID, *[identity(-1, -1, 42)] * 200)
    rig = rig_of(broker.cluster, delivery_timeout_ms=40_000)
    future = rig.queue()
    assert rig.run(lambda: future.is_done, seconds=41)
    error = future.exception
    assert isinstance(error, DeliveryTimeoutError)
    assert "INVALID_REQUEST (42): asking for a producer id" in str(error)
    logged = [r for r in caplog.records if r.name == "kprod.sender.connection_log"]
    assert len([r for r in logged if "asked again: INVALID_REQUEST" in r.getMessage()]) == 1


@pytest.mark.parametrize("code", [29, 31, 53, 90])
def test_a_permanent_refusal_fails_all_records(broker: ScriptedBroker, code: int) -> None:
    broker.next(ApiKey.INIT_PRODUCER_ID, identity(-1, -1, code))
    rig = rig_of(broker.cluster)
    for _ in range(2):
        future = rig.queue()
        assert rig.run(future.failed, seconds=5)
        error = future.exception
        assert isinstance(error, BrokerError)
        assert error.code == code
        assert "enable_idempotence=False" in "".join(error.__notes__)
    assert broker.count(ApiKey.INIT_PRODUCER_ID) == 1
    assert rig.sender.accumulator.pool.available == rig.sender.accumulator.pool.total


@pytest.mark.parametrize("garbage", [(-1, -1), (-1, 0), (7, -1), (-5, 3)])
def test_an_invalid_id_is_not_used(broker: ScriptedBroker, garbage: tuple[int, int]) -> None:
    broker.next(ApiKey.INIT_PRODUCER_ID, identity(*garbage))
    rig = rig_of(broker.cluster)
    future = rig.queue()
    assert rig.run(lambda: future.is_done, seconds=5)
    assert future.succeeded()
    assert broker.cluster.log[TP][0].producer_id > 4000
