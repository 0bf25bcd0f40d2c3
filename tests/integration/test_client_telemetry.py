"""Producers tell a broker of their metrics over real connections: ours, and librdkafka's."""

from __future__ import annotations

import asyncio
import uuid

import pytest
from confluent_kafka import Producer

from kprod import KafkaProducer, aio
from kprod.broker import ApiKey, ClientMetricsSubscription, EmbeddedBroker
from kprod.errors import IllegalStateError, KprodTimeoutError, ProducerClosedError
from kprod.kafka.errors import IllegalStateError as FaceStateError
from kprod.kafka.errors import KafkaTimeoutError
from tests.support.metrics_data import read_metrics

DOMAIN = "org.apache.kafka.producer."
SOON = ClientMetricsSubscription(metrics=(DOMAIN,), push_interval_ms=100)


def test_a_producer_tells_its_metrics_until_it_ends() -> None:
    with EmbeddedBroker(topics={"t": 1}) as broker:
        broker.client_metrics.subscribe(SOON)
        with KafkaProducer(bootstrap_servers=broker.bootstrap_servers, client_id="me") as producer:
            own_id = producer.client_instance_id(timeout=30)
            producer.send("t", b"v").get(timeout=30)
            assert len(broker.client_metrics.await_pushes(2, timeout=30)) >= 2
            assert producer.client_instance_id() == own_id
        *before, last = broker.client_metrics.pushes
    assert isinstance(own_id, uuid.UUID)
    assert {(push.instance_id, push.client_id) for push in (*before, last)} == {(own_id, "me")}
    assert last.terminating
    assert not any(push.terminating for push in before)
    told = [read_metrics(push.metrics) for push in (*before, last)]
    totals = [
        one.value for push in told for one in push if one.name == f"{DOMAIN}record.send.total"
    ]
    assert sum(totals) == 1, "as differences"
    names = {one.name for push in told for one in push}
    assert f"{DOMAIN}connection.creation.rate" in names
    assert f"{DOMAIN}node.request.latency.avg" in names
    assert f"{DOMAIN}topic.byte.total" in names


def test_librdkafka_is_asked_in_the_same_words() -> None:
    with EmbeddedBroker(topics={"t": 1}) as broker:
        broker.client_metrics.subscribe(SOON)
        producer = Producer({"bootstrap.servers": broker.bootstrap_servers})
        producer.produce("t", b"v")
        producer.flush(30)
        (push, *_) = broker.client_metrics.await_pushes(1, timeout=30)
        names = {one.name for one in read_metrics(push.metrics)}
    assert f"{DOMAIN}connection.creation.total" in names


def test_a_push_that_fails_harms_no_record() -> None:
    with EmbeddedBroker(topics={"t": 1}) as broker:
        broker.client_metrics.subscribe(SOON)
        broker.faults.limit_versions(ApiKey.PUSH_TELEMETRY, 5, 6)  # it offers one we do not know
        with KafkaProducer(bootstrap_servers=broker.bootstrap_servers) as producer:
            producer.send("t", b"v").get(timeout=30)
            with pytest.raises(KprodTimeoutError, match="KIP-714"):
                producer.client_instance_id(timeout=0.01)
        assert broker.client_metrics.pushes == []


def test_there_is_no_id_without_telemetry() -> None:
    with EmbeddedBroker(topics={"t": 1}) as broker:
        address = broker.bootstrap_servers
        with (
            KafkaProducer(bootstrap_servers=address, enable_metrics_push=False) as producer,
            pytest.raises(IllegalStateError, match="enable_metrics_push"),
        ):
            producer.client_instance_id()
        with (
            KafkaProducer(bootstrap_servers=address) as producer,
            pytest.raises(KprodTimeoutError, match="KIP-714"),
        ):
            producer.client_instance_id(timeout=0.01)
    with pytest.raises(ProducerClosedError):
        producer.client_instance_id()


AsyncProducer = type[aio.Producer] | type[aio.AIOKafkaProducer]


@pytest.mark.parametrize(
    ("kind", "too_late", "switched_off"),
    [
        (aio.Producer, KprodTimeoutError, IllegalStateError),
        (aio.AIOKafkaProducer, KafkaTimeoutError, FaceStateError),
    ],
)
def test_each_asyncio_producer_awaits_its_id_or_says_in_its_own_errors_that_there_is_none(
    kind: AsyncProducer, too_late: type[Exception], switched_off: type[Exception]
) -> None:
    async def ask(servers: str) -> uuid.UUID:
        async with kind(bootstrap_servers=servers) as producer:
            with pytest.raises(too_late, match="KIP-714"):
                await producer.client_instance_id(timeout=0.01)
        async with kind(bootstrap_servers=servers, enable_metrics_push=False) as producer:
            with pytest.raises(switched_off, match="enable_metrics_push"):
                await producer.client_instance_id()
        broker.client_metrics.subscribe(SOON)
        async with kind(bootstrap_servers=servers) as producer:
            own_id = await producer.client_instance_id(timeout=30)
            assert await producer.client_instance_id() == own_id
            return own_id

    with EmbeddedBroker() as broker:
        own_id = asyncio.run(ask(broker.bootstrap_servers))
        broker.client_metrics.await_pushes(1, timeout=30)
        assert {push.instance_id for push in broker.client_metrics.pushes} == {own_id}
