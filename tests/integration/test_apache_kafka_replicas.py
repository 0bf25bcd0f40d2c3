"""Two Apache Kafka brokers: leaders that move, and replicas that are missing."""

from __future__ import annotations

import os
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from kprod import KafkaProducer
from kprod.errors import DeliveryTimeoutError
from kprod.types import Persisted
from kprod_ext.futures import FutureRecordMetadata
from tests.support.apache_kafka.broker import ApacheKafka
from tests.support.apache_kafka.jars import NEWEST
from tests.support.judge import read_back
from tests.support.numbered_records import check_numbered, numbered
from tests.support.topic_admin import TopicAdmin

KILLS = 20 if os.environ.get("KPROD_CAMPAIGN") == "long" else 2
RECORDS_PER_KILL = 50_000
PARTITIONS = 6
SECONDS = 60 + 30 * KILLS

pytestmark = [pytest.mark.full, pytest.mark.timeout(SECONDS + 300)]


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[ApacheKafka]]:
    folder = tmp_path_factory.mktemp("kafka")
    with (
        ApacheKafka(folder / "1", NEWEST) as first,
        ApacheKafka(folder / "2", NEWEST, joins=first) as second,
    ):
        yield [first, second]


@pytest.fixture
def bootstrap(cluster: list[ApacheKafka]) -> str:
    return ",".join(broker.bootstrap_servers for broker in cluster)


@pytest.fixture
def admin(bootstrap: str) -> TopicAdmin:
    return TopicAdmin(bootstrap)


def test_leaders_that_move_cost_no_record_and_no_order(
    bootstrap: str, cluster: list[ApacheKafka], admin: TopicAdmin
) -> None:
    admin.await_brokers(2)
    admin.create("moving", PARTITIONS, replicas=2)
    with (
        KafkaProducer(
            bootstrap_servers=bootstrap, batch_size=2_048, delivery_timeout_ms=SECONDS * 1000
        ) as producer,
        ThreadPoolExecutor(1) as killer,
    ):
        futures: list[FutureRecordMetadata] = []
        for kill in range(KILLS):
            broker = cluster[(kill + 1) % 2]  # first the one that is not the controller
            back = killer.submit(_kill_and_restart, broker, admin)
            for number in range(kill * RECORDS_PER_KILL, (kill + 1) * RECORDS_PER_KILL):
                partition = number % PARTITIONS
                futures.append(producer.send("moving", numbered(number), partition=partition))
            back.result(timeout=SECONDS)
        producer.flush(timeout=SECONDS)
        places = [future.get(timeout=0) for future in futures]
        retried = producer.metrics()["producer-metrics"]["record-retry-total"]

    assert retried > 0, "no leader moved while there was something to send"
    check_numbered(read_back(bootstrap, "moving", PARTITIONS, 240), places, PARTITIONS)


def _kill_and_restart(broker: ApacheKafka, admin: TopicAdmin) -> None:
    broker.kill()
    broker.start()
    admin.await_in_sync("moving", 2)


def test_a_record_waits_for_replicas_until_its_time_is_up(
    bootstrap: str, cluster: list[ApacheKafka], admin: TopicAdmin
) -> None:
    second = cluster[1]
    admin.create("missing", 1, replicas=2, min_insync_replicas=2)
    second.kill()
    admin.await_in_sync("missing", 1)
    with (
        KafkaProducer(
            bootstrap_servers=bootstrap, delivery_timeout_ms=2_500, request_timeout_ms=1_000
        ) as impatient,
        KafkaProducer(bootstrap_servers=bootstrap) as patient,
    ):
        given_up = impatient.send("missing", b"given up")
        waiting = patient.send("missing", b"waiting")
        with pytest.raises(DeliveryTimeoutError, match="NOT_ENOUGH_REPLICAS") as caught:
            given_up.get(timeout=30)
        # A busy broker may still owe the answer to the last attempt: then nobody knows.
        unanswered = "unanswered" in str(caught.value)
        assert caught.value.persisted is (Persisted.MAYBE if unanswered else Persisted.NO)
        assert not waiting.is_done
        second.start()
        waiting.get(timeout=60)
    stored = [record.value for record in read_back(bootstrap, "missing", 1)]
    assert stored.count(b"waiting") == 1
    assert unanswered or stored == [b"waiting"]
