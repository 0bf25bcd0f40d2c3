"""Client metrics (KIP-714) pushed by kprod and librdkafka over real connections."""

from __future__ import annotations

import time
import uuid
from collections.abc import AsyncIterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from typing import Any

import pytest
from confluent_kafka import Producer

from kprod import KafkaProducer, aio
from kprod.broker import ApiKey, ClientMetricsSubscription, EmbeddedBroker, Fault
from kprod.errors import IllegalStateError, KprodTimeoutError, ProducerClosedError
from kprod.kafka.errors import IllegalStateError as KafkaPythonStateError
from kprod.kafka.errors import KafkaTimeoutError
from tests.support.metrics_data import read_metrics
from tests.support.waiting import await_true

DOMAIN = "org.apache.kafka.producer."
SUBSCRIPTION = ClientMetricsSubscription(metrics=(DOMAIN,), push_interval_ms=100)


def test_librdkafka_pushes_the_subscribed_metrics(broker: EmbeddedBroker) -> None:
    broker.client_metrics.subscribe(SUBSCRIPTION)
    producer = Producer({"bootstrap.servers": broker.bootstrap_servers})
    producer.produce("t", b"v")
    producer.flush(30)
    (push, *_) = broker.client_metrics.await_pushes(1, timeout=30)
    names = {one.name for one in read_metrics(push.metrics)}
    assert f"{DOMAIN}connection.creation.total" in names


def test_a_producer_without_an_instance_id_does_not_reconnect(broker: EmbeddedBroker) -> None:
    """It used to reconnect forever when a broker without KIP-714 closed the idle connection."""
    servers = broker.bootstrap_servers
    with KafkaProducer(bootstrap_servers=servers, connections_max_idle_ms=200) as producer:
        with pytest.raises(KprodTimeoutError, match="KIP-714"):
            producer.client_instance_id(timeout=0.1)
        time.sleep(0.6)
        assert producer.metrics()["producer-metrics"]["connection-creation-total"] == 1


def test_waiting_for_the_instance_id_raises_the_reason(broker: EmbeddedBroker) -> None:
    servers = broker.bootstrap_servers
    with KafkaProducer(bootstrap_servers=servers) as producer, ThreadPoolExecutor(1) as thread:
        waiting = thread.submit(producer.client_instance_id, 30)
        await_true(producer.bootstrap_connected)
        producer.close()
        with pytest.raises(ProducerClosedError, match="had given an id"):
            waiting.result(30)
    broker.client_metrics.subscribe(SUBSCRIPTION)
    broker.faults.add(Fault(api=ApiKey.GET_TELEMETRY_SUBSCRIPTIONS, error=42))
    with (
        KafkaProducer(bootstrap_servers=servers) as producer,
        pytest.raises(KprodTimeoutError, match=r"gives no id: INVALID_REQUEST \(42\)"),
    ):
        producer.client_instance_id(timeout=30)


async def instance_id(producer: Any, **options: float) -> uuid.UUID:
    answer = producer.client_instance_id(**options)
    found: uuid.UUID = answer if isinstance(answer, uuid.UUID) else await answer
    return found


@asynccontextmanager
async def native(**options: Any) -> AsyncIterator[KafkaProducer]:
    with KafkaProducer(**options) as producer:
        yield producer
    with pytest.raises(ProducerClosedError):
        producer.client_instance_id()


@pytest.mark.parametrize(
    ("kind", "too_late", "switched_off"),
    [
        (native, KprodTimeoutError, IllegalStateError),
        (aio.Producer, KprodTimeoutError, IllegalStateError),
        (aio.AIOKafkaProducer, KafkaTimeoutError, KafkaPythonStateError),
    ],
)
async def test_each_producer_class_returns_its_instance_id_or_raises_its_own_error(
    broker: EmbeddedBroker, kind: Any, too_late: type[Exception], switched_off: type[Exception]
) -> None:
    servers = broker.bootstrap_servers
    async with kind(bootstrap_servers=servers) as producer:
        with pytest.raises(too_late, match="KIP-714"):
            await instance_id(producer, timeout=0.01)
    async with kind(bootstrap_servers=servers, enable_metrics_push=False) as producer:
        with pytest.raises(switched_off, match="enable_metrics_push"):
            await instance_id(producer)
    broker.client_metrics.subscribe(SUBSCRIPTION)
    async with kind(bootstrap_servers=servers) as producer:
        own_id = await instance_id(producer, timeout=30)
        assert await instance_id(producer) == own_id
    broker.client_metrics.await_pushes(1, timeout=30)
    assert {push.instance_id for push in broker.client_metrics.pushes} == {own_id}
