"""Answers that are lost, late, doubled, swapped or damaged: every record is stored once, in order.

The proxy stands between the producer and a broker in a process of its own; an independent consumer
reads what came of it.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count
from typing import Any

import pytest

from kprod import KafkaProducer
from kprod.admin import create_topic
from kprod.broker.protocol.api_key import ApiKey
from kprod_ext.futures import FutureRecordMetadata
from tests.fault.through_proxy import through_proxy
from tests.support.broker_process import BrokerProcess
from tests.support.frame_proxy import FrameProxy, Spoil
from tests.support.judge import read_back
from tests.support.numbered_records import check_numbered, numbered

TOPICS = (f"spoiled-{number}" for number in count())
PARTITIONS = 2
SIZE = 100
SOON: dict[str, Any] = {"request_timeout_ms": 200, "batch_size": 2 * SIZE}
"""An answer that does not come is given up soon; a batch holds one record."""


class Bench:
    """A broker, the proxy before it, and a producer whose records are numbered."""

    def __init__(self, broker: BrokerProcess, proxy: FrameProxy, producer: KafkaProducer) -> None:
        self.proxy = proxy
        self.producer = producer
        self.topic = next(TOPICS)
        self._broker = broker
        create_topic(broker.bootstrap_servers, self.topic, PARTITIONS)
        self._futures: list[FutureRecordMetadata] = []
        self.send(PARTITIONS)  # what follows goes to brokers that have proved themselves

    def send(self, records: int) -> None:
        """Send so many, and wait for all of them."""
        first = len(self._futures)
        for number in range(first, first + records):
            partition = number % PARTITIONS
            self._futures.append(
                self.producer.send(self.topic, numbered(number, SIZE), partition=partition)
            )
        assert self.producer.flush(30).failed == 0

    def check(self) -> None:
        """Every record is in the log once, in the order of sending."""
        found = read_back(self._broker.bootstrap_servers, self.topic, PARTITIONS)
        check_numbered(found, [future.get(0) for future in self._futures], PARTITIONS)

    def count(self, name: str) -> float:
        """One of the producer's metrics."""
        return self.producer.metrics()["producer-metrics"][name]


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    with BrokerProcess(tmp_path_factory.mktemp("broker"), {}) as broker:
        yield broker


@pytest.fixture
def bench(broker: BrokerProcess) -> Iterator[Bench]:
    with FrameProxy(broker.port) as proxy, through_proxy(proxy.port, **SOON) as producer:
        yield Bench(broker, proxy, producer)


def produce(how: str, at: int = 0, seconds: float = 0.0) -> Spoil:
    """Something that happens to the exchange of one Produce request."""
    return Spoil(ApiKey.PRODUCE, how, at, seconds)


SPOILED = {
    "response lost": [produce("swallow")],
    "five responses lost": [produce("swallow")] * 5,
    "connection goes silent": [produce("silence")] * 2,
    "response later than the time limit": [produce("delay", seconds=0.5)],
    "request comes twice": [produce("repeat-request")] * 3,
    "response comes twice": [produce("repeat-response")] * 3,
    "responses change places": [produce("swap")] * 3,
    "response shorter than it says": [produce("length", 10_000)],
    "response longer than it says": [produce("length", 20)],
    "response without end": [produce("length", 2**31 - 1)],
    "response of negative length": [produce("length", -1)],
    "response of no length": [produce("length", 0)],
    "response with another correlation id": [produce("flip-response", 7)] * 2,
    "damaged records": [produce("flip-request", -1)] * 2,
}


@pytest.mark.parametrize("spoils", SPOILED.values(), ids=SPOILED)
def test_each_record_is_stored_once_and_in_order(bench: Bench, spoils: list[Spoil]) -> None:
    for records in (1, 24):  # alone, and with several requests in flight
        for spoil in spoils:
            bench.proxy.arm(spoil)
        bench.send(records)
    bench.send(1 + len(spoils))
    for _ in range(2 * len(spoils) - bench.proxy.done):
        bench.send(1)
    assert bench.proxy.done == 2 * len(spoils)
    bench.check()


def test_what_is_damaged_on_the_way_is_refused_and_sent_again(bench: Bench) -> None:
    """Any byte that the checksum covers; the broker answers CORRUPT_MESSAGE."""
    size = bench.proxy.sizes[ApiKey.PRODUCE].request
    for at in range(size - SIZE, size, 7):
        bench.proxy.arm(produce("flip-request", at))
        bench.send(1)
    assert bench.count("record-retry-total") == len(range(size - SIZE, size, 7))
    bench.check()


def test_a_connection_that_goes_silent_is_left_in_time(bench: Bench) -> None:
    """Half-open: the other side is gone and nobody says so. The next connection serves."""
    before = bench.proxy.connections
    for _ in range(3):
        bench.proxy.arm(produce("silence"))
        bench.send(3)
    assert bench.proxy.connections >= before + 3
    bench.check()


def test_a_record_is_acknowledged_with_the_offset_of_its_first_attempt(bench: Bench) -> None:
    """The broker stored it, its answer was lost, and the repetition is recognised."""
    for number in range(5):
        bench.proxy.arm(produce("cut-response"))
        future = bench.producer.send(bench.topic, numbered(number), partition=0)
        assert future.get(20).offset == 1 + number


def test_a_producer_id_is_asked_for_again_when_the_answer_is_lost(broker: BrokerProcess) -> None:
    topic = next(TOPICS)
    with FrameProxy(broker.port) as proxy:
        for how in ("swallow", "silence", "cut-response", "repeat-response"):
            proxy.arm(Spoil(ApiKey.INIT_PRODUCER_ID, how))
            with through_proxy(proxy.port, **SOON) as producer:
                assert producer.send(topic, b"v").get(20)
        assert proxy.done == 4
        assert len(read_back(broker.bootstrap_servers, topic, 1)) == 4


@pytest.mark.parametrize("api", [ApiKey.API_VERSIONS, ApiKey.METADATA], ids=lambda api: api.name)
@pytest.mark.parametrize("how", ["silence", "swallow", "repeat-response"])
def test_a_start_that_is_disturbed_takes_a_little_longer(
    broker: BrokerProcess, api: ApiKey, how: str
) -> None:
    with FrameProxy(broker.port) as proxy:
        proxy.arm(Spoil(api, how))
        options = {**SOON, "socket_connection_setup_timeout_ms": 200}
        with through_proxy(proxy.port, **options) as producer:
            assert producer.send(next(TOPICS), b"v").get(20).offset == 0
        assert proxy.done == 1
