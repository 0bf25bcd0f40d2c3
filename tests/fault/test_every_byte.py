"""The connection breaks at every byte of a request and of its response: once each, in order.

``KPROD_CAMPAIGN=long`` takes every byte of exchanges with several requests in flight, too.
"""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

from kprod.admin import create_topic
from kprod.broker.protocol.api_key import ApiKey
from tests.fault.through_proxy import through_proxy
from tests.support.broker_process import BrokerProcess
from tests.support.frame_proxy import FrameProxy, Spoil
from tests.support.judge import read_back
from tests.support.numbered_records import check_numbered, numbered
from tests.support.tier import one_of

LONG = os.environ.get("KPROD_CAMPAIGN") == "long"
STEP = 1 if LONG else 9
"""Bytes between two cuts, where every byte takes too long for every day."""

PARTITIONS = 2
BATCH = 200
CONTROL = (ApiKey.API_VERSIONS, ApiKey.METADATA, ApiKey.INIT_PRODUCER_ID)


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    with BrokerProcess(tmp_path_factory.mktemp("broker"), {}) as broker:
        yield broker


def positions(proxy: FrameProxy, api: ApiKey, how: str, step: int) -> range:
    """From before the first byte to behind the last."""
    sizes = proxy.sizes[api]
    return range(0, (sizes.request if how == "cut-request" else sizes.response) + 1, step)


@pytest.mark.parametrize("how", one_of("cut-response", "cut-request"))
def test_every_byte_of_a_produce_exchange(broker: BrokerProcess, how: str) -> None:
    topic = f"alone-{how}"
    create_topic(broker.bootstrap_servers, topic, PARTITIONS)
    with FrameProxy(broker.port) as proxy, through_proxy(proxy.port) as producer:
        places = [producer.send(topic, numbered(0), partition=0).get(20)]
        cuts = positions(proxy, ApiKey.PRODUCE, how, 1)
        for at in cuts:
            number = len(places)
            proxy.arm(Spoil(ApiKey.PRODUCE, how, at, reset=at % 2 == 1))
            future = producer.send(topic, numbered(number), partition=number % PARTITIONS)
            places.append(future.get(20))
            assert proxy.done == number
        assert producer.metrics()["producer-metrics"]["record-retry-total"] >= len(cuts) - 1
        found = read_back(broker.bootstrap_servers, topic, PARTITIONS)
    check_numbered(found, places, PARTITIONS)
    print(f"{how}: cut at each of {len(cuts)} positions, {len(places)} records, each once")


@pytest.mark.full
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("how", ["cut-request", "cut-response"])
def test_with_several_requests_in_flight(broker: BrokerProcess, how: str) -> None:
    """The batches behind the one whose connection breaks are retried with it, in their order."""
    topic = f"several-{how}"
    create_topic(broker.bootstrap_servers, topic, PARTITIONS)
    with (
        FrameProxy(broker.port) as proxy,
        through_proxy(proxy.port, batch_size=BATCH) as producer,
    ):
        futures = [producer.send(topic, numbered(n, 100), partition=n % 2) for n in range(2)]
        producer.flush(20)
        for at in positions(proxy, ApiKey.PRODUCE, how, STEP):
            proxy.arm(Spoil(ApiKey.PRODUCE, how, at, reset=at % 2 == 1))
            for number in range(len(futures), len(futures) + 12):
                value = numbered(number, 100)
                futures.append(producer.send(topic, value, partition=number % PARTITIONS))
            assert producer.flush(20).failed == 0
        places = [future.get(0) for future in futures]
        found = read_back(broker.bootstrap_servers, topic, PARTITIONS)
    check_numbered(found, places, PARTITIONS)
    print(f"{how}, several in flight: {proxy.done} cuts, {len(places)} records, each once")


@pytest.mark.full
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("how", ["cut-request", "cut-response"])
@pytest.mark.parametrize("api", CONTROL, ids=lambda api: api.name)
def test_every_byte_of_what_comes_before_the_first_record(
    broker: BrokerProcess, api: ApiKey, how: str
) -> None:
    """The greeting, the first look at the cluster, and the question for a producer id."""
    topic = f"{api.name.lower()}-{how}"
    with FrameProxy(broker.port) as proxy:
        with through_proxy(proxy.port) as first:
            places = [first.send(topic, numbered(0)).get(20)]
        for at in positions(proxy, api, how, STEP):
            proxy.arm(Spoil(api, how, at, reset=at % 2 == 1))
            with through_proxy(proxy.port) as producer:
                places.append(producer.send(topic, numbered(len(places))).get(20))
            assert proxy.done == len(places) - 1
        found = read_back(broker.bootstrap_servers, topic, 1)
    check_numbered(found, places, 1)
    print(f"{api.name}, {how}: {proxy.done} cuts, each new producer delivered")
