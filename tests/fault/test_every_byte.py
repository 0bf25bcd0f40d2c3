"""The connection is cut at every byte of a request and of its response.

The simulation cuts several requests in flight and the requests before the first record.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from kprod.admin import create_topic
from kprod.broker.protocol.api_key import ApiKey
from tests.fault.loopback_resolver import LoopbackResolver
from tests.support.broker_process import BrokerProcess
from tests.support.committed_records import read_back
from tests.support.frame_proxy import FrameProxy, Spoil
from tests.support.numbered_records import check_numbered, numbered
from tests.support.tier import one_of

PARTITIONS = 2


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    with BrokerProcess(tmp_path_factory.mktemp("broker"), {}) as broker:
        yield broker


@pytest.mark.parametrize("how", one_of("cut-response", "cut-request"))
def test_a_connection_cut_at_any_byte_of_produce_loses_and_duplicates_nothing(
    broker: BrokerProcess, how: str
) -> None:
    topic = f"single-{how}"
    create_topic(broker.bootstrap_servers, topic, PARTITIONS)
    with FrameProxy(broker.port) as proxy, LoopbackResolver(proxy.port).producer() as producer:
        results = [producer.send(topic, numbered(0), partition=0).get(20)]
        sizes = proxy.sizes[ApiKey.PRODUCE]
        cuts = range((sizes.request if how == "cut-request" else sizes.response) + 1)
        for at in cuts:
            number = len(results)
            proxy.arm(Spoil(ApiKey.PRODUCE, how, at, reset=at % 2 == 1))
            future = producer.send(topic, numbered(number), partition=number % PARTITIONS)
            results.append(future.get(20))
            assert proxy.done == number
        assert producer.metrics()["producer-metrics"]["record-retry-total"] >= len(cuts) - 1
        found = read_back(broker.bootstrap_servers, topic, PARTITIONS)
    check_numbered(found, results, PARTITIONS)
    print(f"{how}: cut at each of {len(cuts)} positions, {len(results)} records, each once")
