"""Shards of one batch that begin concurrently, on every kind of broker."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any

import pytest

from kprod.admin import open_transactions
from kprod.broker import EmbeddedBroker
from kprod.exactly_once import protocol
from kprod.exactly_once.shard import Shard
from kprod.spark.executor_producer import process_cache
from kprod.spark.options import job_options
from tests.integration.conftest import SharedKafka
from tests.spark.exactly_once.attempts import attempt
from tests.support.apache_kafka.jars import NEWEST, OLDER
from tests.support.committed_records import committed
from tests.support.topic_admin import TopicAdmin

pytestmark = [pytest.mark.full]

TOPIC = "shards-together"
SHARDS = 6
BATCHES = 6


@pytest.fixture(scope="module", autouse=True)
def close_kept_producers() -> Iterator[None]:
    yield
    process_cache().close()


@pytest.fixture(scope="module", params=["embedded", NEWEST, OLDER])
def servers(request: pytest.FixtureRequest, shared_kafka: SharedKafka) -> Iterator[str]:
    if request.param == "embedded":
        with EmbeddedBroker() as embedded:
            yield embedded.bootstrap_servers
    else:
        yield shared_kafka(request.param).bootstrap_servers


def test_shards_that_begin_concurrently_do_not_fail(servers: str) -> None:
    """None is the first shard, so all of them store the layout concurrently.

    With protocol 2 one may get INVALID_TXN_STATE while another takes over its id.
    """
    TopicAdmin(servers).create(TOPIC, 1)
    options = job_options({"bootstrap_servers": servers}, transactional=True)
    failed: list[BaseException] = []

    def write(shard: Shard, ready: threading.Barrier) -> None:
        def send_rows(producer: Any) -> None:
            producer.send(TOPIC, b"%d of %d" % (shard.number, shard.batch))

        ready.wait()
        try:
            with attempt(shard, options, send_rows) as run:
                assert run.follow(protocol.deliver(run.shard, run.patience)).by_us
        except BaseException as error:
            failed.append(error)

    for batch in range(BATCHES):
        ready = threading.Barrier(SHARDS)
        shards = [
            Shard(
                prefix="p",
                job="together",
                number=number,
                batch=batch,
                shards=SHARDS + 1,
                topic=TOPIC,
            )
            for number in range(1, SHARDS + 1)
        ]
        threads = [threading.Thread(target=write, args=(shard, ready)) for shard in shards]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert failed == []
    expected = [b"%d of %d" % (n, b) for n in range(1, SHARDS + 1) for b in range(BATCHES)]
    assert sorted(committed(servers, TOPIC, 1)) == sorted(expected)
    assert not [each for each in open_transactions(servers) if "together" in each.transactional_id]
