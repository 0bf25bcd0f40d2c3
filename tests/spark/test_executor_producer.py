"""``executor_producer`` and the cache of producers behind it."""

from __future__ import annotations

import threading
from typing import Any

import pytest

from kprod import KafkaProducer
from kprod.admin import open_transactions, read_topic
from kprod.broker import EmbeddedBroker
from kprod.errors import ConfigError, DeliveryError, IllegalStateError
from kprod.spark import executor_producer
from kprod.spark.executor_producer import MOST, ProducerCache
from kprod.transactional.rename import rename
from tests.support.committed_records import committed
from tests.support.programs import run_python


def test_a_block_ends_when_its_records_are_stored(kafka: str) -> None:
    options: Any = {"bootstrap_servers": kafka, "linger_ms": 10_000, "client.id": "mine"}
    with executor_producer(**options) as producer:
        producer.send("block", b"v", key=b"k")
    ((_partition, record),) = read_topic(kafka, "block")
    assert (record.key, record.value) == (b"k", b"v")
    assert producer.records == 1


class ClosingSerializer:
    def __init__(self) -> None:
        self.closed = threading.Event()

    def serialize(self, _topic: str, _headers: object, data: str) -> bytes:
        return data.encode()

    def close(self) -> None:
        self.closed.set()


def test_serializers_in_the_options_are_used_and_closed(kafka: str) -> None:
    cache, serializer = ProducerCache(), ClosingSerializer()
    options = {"key.serializer": serializer, "value_serializer": "bytes"}
    with cache.lend("a", {"bootstrap_servers": kafka, **options}) as producer:
        producer.send("serialized", b"v", "k").get(30)
    ((_partition, record),) = read_topic(kafka, "serialized")
    assert (record.key, record.value) == (b"k", b"v")
    cache.close()
    assert serializer.closed.wait(30)


def test_a_block_raises_when_records_are_not_delivered(kafka: str) -> None:
    with EmbeddedBroker(topics={"gone": 1}) as broker:
        servers = broker.bootstrap_servers
        with executor_producer(bootstrap_servers=servers) as producer:
            producer.send("gone", b"before")
        broker.stop()
        with (
            pytest.raises(DeliveryError),
            executor_producer(bootstrap_servers=servers, timeout=0.2) as producer,
        ):
            producer.send("gone", b"after")


def test_invalid_options_are_refused() -> None:
    wrong = executor_producer(bootstrap_server="b:1")  # type: ignore[call-arg]
    for block in (wrong, executor_producer(bootstrap_servers="b:1", timeout=1e10)):
        with pytest.raises(ConfigError), block:
            pass


def test_blocks_with_the_same_options_share_a_producer(kafka: str) -> None:
    cache = ProducerCache()
    with cache.lend("a", {"bootstrap_servers": kafka}) as first:
        pass
    with (
        cache.lend("a", {"bootstrap_servers": kafka}) as same,
        cache.lend("b", {"bootstrap_servers": kafka, "linger_ms": 7}) as other,
    ):
        assert same is first
        assert other is not first
        assert first.config.client_id.startswith("kprod-spark-")
        cache.close()
    for each in (first, other):
        with pytest.raises(IllegalStateError):
            each.send("closed", b"v")
    with cache.lend("a", {"bootstrap_servers": kafka}) as new:
        assert new is not first
        new.send("replaced", b"v").get(timeout=30)
    cache.close()
    cache.close()


def test_a_failed_block_does_not_close_a_producer_in_use(kafka: str) -> None:
    options: Any = {"bootstrap_servers": kafka, "linger_ms": 60_000, "client_id": "shared"}
    with executor_producer(**options) as first:
        future = first.send("shared", b"v")
        with pytest.raises(ValueError, match="its own"), executor_producer(**options):
            raise ValueError("its own")
        with executor_producer(**options) as fresh:
            assert fresh._task._producer is not first._task._producer
    assert future.succeeded()
    with pytest.raises(IllegalStateError):
        first._task._producer.send("shared", b"v")


def test_a_transactional_producer_is_not_shared_and_reused_under_another_id(kafka: str) -> None:
    cache, options = ProducerCache(), {"bootstrap_servers": kafka}

    def writes(producer: KafkaProducer, name: str) -> None:
        rename(producer, name)
        with producer.transaction():
            producer.send("alone", name.encode(), partition=0)

    with cache.lend_alone("a", options, "first") as first, cache.lend("a", options) as other:
        assert other is not first
        with cache.lend_alone("a", options, "second") as second:
            assert second is not first
            writes(first, "first")
            writes(second, "second")
    with cache.lend_alone("a", options, "third") as again:
        assert again is first
        writes(again, "third")
    with pytest.raises(IllegalStateError):
        second.begin_transaction()
    cache.close()
    assert committed(kafka, "alone", 3) == [b"first", b"second", b"third"]


def test_a_failed_block_aborts_its_transaction_and_closes_its_producer(kafka: str) -> None:
    cache, options = ProducerCache(), {"bootstrap_servers": kafka}
    made: list[KafkaProducer] = []

    def fail() -> None:
        with cache.lend_alone("a", options, "fails") as producer:
            made.append(producer)
            producer.init_transactions()
            producer.begin_transaction()
            producer.send("failed", b"v").get(timeout=30)
            raise ValueError("of the block")

    with pytest.raises(ValueError, match="of the block"):
        fail()
    assert not open_transactions(kafka)
    with cache.lend_alone("a", options, "fails") as producer:
        assert producer is not made[0]
    cache.close()


def test_only_the_most_recently_used_idle_producers_stay_open(kafka: str) -> None:
    cache = ProducerCache()
    with cache.lend("in use", {"bootstrap_servers": kafka}) as in_use:
        made = []
        for number in range(3 * MOST):
            with cache.lend(str(number), {"bootstrap_servers": kafka}) as producer:
                made.append(producer)
        for old in made[:-MOST]:
            with pytest.raises(IllegalStateError):
                old.send("many", b"v")
        for kept in (in_use, *made[-MOST:]):
            kept.send("many", b"v").get(timeout=30)
    cache.close()


FORK = """
import os, sys
from kprod.spark import executor_producer

def send(value):
    with executor_producer(bootstrap_servers=sys.argv[1]) as producer:
        producer.send("forked", value)

send(b"parent before")
child = os.fork()
if child == 0:
    send(b"child")
    os._exit(0)
_, status = os.waitpid(child, 0)
send(b"parent after")
sys.exit(os.waitstatus_to_exitcode(status))
"""


def test_a_forked_worker_has_a_producer_of_its_own(kafka: str) -> None:
    run_python("-c", FORK, kafka, seconds=50)
    stored = sorted(record.value or b"" for _partition, record in read_topic(kafka, "forked"))
    assert stored == [b"child", b"parent after", b"parent before"]


def test_importing_without_pyspark_names_the_package_to_install() -> None:
    script = "import sys; sys.modules['pyspark'] = None; import kprod.spark"
    ran = run_python("-c", script, check=False)
    assert ran.returncode != 0
    assert "pip install 'kprod[spark]'" in ran.stderr
