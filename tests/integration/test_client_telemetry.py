"""Producers tell a broker of their metrics over real connections: ours, and librdkafka's."""

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
from kprod.kafka.errors import IllegalStateError as FaceStateError
from kprod.kafka.errors import KafkaTimeoutError
from tests.support.metrics_data import read_metrics
from tests.support.waiting import await_true

DOMAIN = "org.apache.kafka.producer."
SOON = ClientMetricsSubscription(metrics=(DOMAIN,), push_interval_ms=100)


def test_librdkafka_is_asked_in_the_same_words(broker: EmbeddedBroker) -> None:
    broker.client_metrics.subscribe(SOON)
    producer = Producer({"bootstrap.servers": broker.bootstrap_servers})
    producer.produce("t", b"v")
    producer.flush(30)
    (push, *_) = broker.client_metrics.await_pushes(1, timeout=30)
    names = {one.name for one in read_metrics(push.metrics)}
    assert f"{DOMAIN}connection.creation.total" in names


def test_a_producer_that_got_no_id_stays_without_a_connection(broker: EmbeddedBroker) -> None:
    """Brokers before KIP-714 close its idle connection, and it made another one, for ever."""
    servers = broker.bootstrap_servers
    with KafkaProducer(bootstrap_servers=servers, connections_max_idle_ms=200) as producer:
        with pytest.raises(KprodTimeoutError, match="KIP-714"):
            producer.client_instance_id(timeout=0.1)
        time.sleep(0.6)
        assert producer.metrics()["producer-metrics"]["connection-creation-total"] == 1


def test_who_waits_for_the_id_is_told_why_there_is_none(broker: EmbeddedBroker) -> None:
    servers = broker.bootstrap_servers
    with KafkaProducer(bootstrap_servers=servers) as producer, ThreadPoolExecutor(1) as thread:
        waits = thread.submit(producer.client_instance_id, 30)
        await_true(producer.bootstrap_connected)
        producer.close()
        with pytest.raises(ProducerClosedError, match="had given an id"):
            waits.result(30)
    broker.client_metrics.subscribe(SOON)
    broker.faults.add(Fault(api=ApiKey.GET_TELEMETRY_SUBSCRIPTIONS, error=42))
    with (
        KafkaProducer(bootstrap_servers=servers) as producer,
        pytest.raises(KprodTimeoutError, match=r"gives no id: INVALID_REQUEST \(42\)"),
    ):
        producer.client_instance_id(timeout=30)


async def ask(producer: Any, **given: float) -> uuid.UUID:
    told = producer.client_instance_id(**given)
    found: uuid.UUID = told if isinstance(told, uuid.UUID) else await told
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
        (aio.AIOKafkaProducer, KafkaTimeoutError, FaceStateError),
    ],
)
async def test_each_producer_tells_its_id_or_says_in_its_own_errors_that_there_is_none(
    broker: EmbeddedBroker, kind: Any, too_late: type[Exception], switched_off: type[Exception]
) -> None:
    servers = broker.bootstrap_servers
    async with kind(bootstrap_servers=servers) as producer:
        with pytest.raises(too_late, match="KIP-714"):
            await ask(producer, timeout=0.01)
    async with kind(bootstrap_servers=servers, enable_metrics_push=False) as producer:
        with pytest.raises(switched_off, match="enable_metrics_push"):
            await ask(producer)
    broker.client_metrics.subscribe(SOON)
    async with kind(bootstrap_servers=servers) as producer:
        own_id = await ask(producer, timeout=30)
        assert await ask(producer) == own_id
    broker.client_metrics.await_pushes(1, timeout=30)
    assert {push.instance_id for push in broker.client_metrics.pushes} == {own_id}
