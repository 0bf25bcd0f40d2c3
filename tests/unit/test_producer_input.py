"""Arguments of ``send``: invalid ones are refused before queuing; partitions and timestamps."""

from __future__ import annotations

import mmap
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from itertools import pairwise
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest

from kprod import KafkaProducer
from kprod.cluster.snapshot import TopicInfo
from kprod.errors import (
    InvalidRecordError,
    InvalidTopicError,
    KprodError,
    KprodTimeoutError,
    PartitionError,
    ProducerClosedError,
    RecordTooLargeError,
    RecordTypeError,
    SerializationError,
)
from kprod.transport.memory import MemoryBackend
from kprod.wire.versions import ApiKey
from kprod_ext import RecordClock
from tests.support.scripted_cluster import ScriptedBroker, ScriptedCluster, silence
from tests.support.scripted_producer import cluster_of, producer_before

LONG = 20.0


@pytest.fixture
def producer(broker: ScriptedBroker) -> Iterator[KafkaProducer]:
    with producer_before(broker.cluster, linger_ms=0) as producer:
        producer.send("t", b"before").get(LONG)
        yield producer


def state(producer: KafkaProducer) -> dict[str, float]:
    """Counters that a record without an outcome would change."""
    counters = producer.metrics()["producer-metrics"]
    moved_by_time = ("-rate", "-avg", "-max", "-age")
    return {name: value for name, value in counters.items() if not name.endswith(moved_by_time)}


BAD: list[tuple[str, type[KprodError], dict[str, Any]]] = [
    ("topic", InvalidTopicError, {"topic": "no spaces"}),
    ("key", SerializationError, {"key": ["list"]}),
    ("headers[0]", RecordTypeError, {"headers": [("h", "text")]}),
    ("partition", PartitionError, {"partition": -1}),
    ("timestamp_ms", InvalidRecordError, {"timestamp_ms": -1}),
    ("max_request_size", RecordTooLargeError, {"value": bytes(1_100_000)}),
]


@pytest.mark.parametrize(("name", "kind", "arguments"), BAD)
def test_an_invalid_argument_is_named_and_nothing_is_queued(
    producer: KafkaProducer, name: str, kind: type[KprodError], arguments: dict[str, Any]
) -> None:
    before = state(producer)
    with pytest.raises(kind) as caught:
        producer.send(**{"topic": "t", "value": b"v", **arguments})
    assert name in str(caught.value)
    assert state(producer) == before
    assert producer.flush(LONG).pending == 0
    assert producer.send("t", b"after").get(LONG).offset >= 0


def test_a_record_larger_than_buffer_memory_is_refused_at_once(broker: ScriptedBroker) -> None:
    with producer_before(broker.cluster, buffer_memory=20_000, batch_size=1000) as producer:
        with pytest.raises(RecordTooLargeError, match=r"more than buffer_memory \(20000\)"):
            producer.send("t", bytes(30_000))
        assert broker.connections == 0, "it is refused before any request"


def test_the_error_of_an_unknown_partition_says_how_many_there_are(broker: ScriptedBroker) -> None:
    with producer_before(broker.cluster) as producer:
        with pytest.raises(PartitionError, match=r"'t' has no partition 7: it has 2 partitions"):
            producer.send("t", b"v", partition=7)
        assert state(producer)["buffer-available-bytes"] == state(producer)["buffer-total-bytes"]


def test_an_unknown_topic_is_refused_after_max_block_ms(broker: ScriptedBroker) -> None:
    with producer_before(broker.cluster, max_block_ms=50) as producer:
        with pytest.raises(KprodTimeoutError, match=r"topic 'unknown' within 0\.05 s"):
            producer.partitions_for("unknown")
        with pytest.raises(InvalidTopicError):
            producer.partitions_for("not a topic")
        assert producer.partitions_for("t") == {0, 1}


def test_metadata_is_fetched_although_max_block_ms_is_zero(broker: ScriptedBroker) -> None:
    with producer_before(broker.cluster, max_block_ms=0) as producer:
        with pytest.raises(KprodTimeoutError):
            producer.send("t", b"v")
        pause = threading.Event()
        for _ in range(10_000):
            with suppress(KprodTimeoutError):
                assert producer.send("t", b"v").get(LONG).offset == 0
                return
            pause.wait(0.001)
    raise AssertionError("the metadata never arrived")


def test_a_record_beyond_2_gib_is_refused_and_reported_to_interceptors(
    broker: ScriptedBroker,
) -> None:
    errors: list[Any] = []
    interceptor = SimpleNamespace(on_send_error=lambda record, error: errors.append(error))
    options: dict[str, Any] = {"max_request_size": 2**31 - 1, "buffer_memory": 2**40}
    untouched = memoryview(mmap.mmap(-1, 2**30 + 1))  # allocated on first access
    with producer_before(broker.cluster, interceptors=[interceptor], **options) as producer:
        with pytest.raises(RecordTooLargeError, match=r"topic 't'.*2 GiB") as refused:
            producer.send("t", untouched, key=untouched)
        assert errors == [refused.value]
        assert producer.flush(LONG).pending == 0


@pytest.mark.parametrize("call", ["send", "partitions_for"])
def test_a_closed_producer_refuses_calls(producer: KafkaProducer, call: str) -> None:
    producer.close()
    before = state(producer)
    with pytest.raises(ProducerClosedError):
        getattr(producer, call)("t")
    assert state(producer) == before


@pytest.mark.parametrize("call", ["flush", "close"])
def test_an_invalid_timeout_is_refused(producer: KafkaProducer, call: str) -> None:
    invalid: list[tuple[Any, type[Exception]]] = [
        *((seconds, ValueError) for seconds in (-1, float("nan"), 10**18)),
        ("1", TypeError),
    ]
    for timeout, builtin in invalid:
        with pytest.raises(KprodError, match=f"{call}: timeout") as caught:
            getattr(producer, call)(timeout)
        assert isinstance(caught.value, builtin)
    assert producer.send("t", b"still open").get(LONG).offset >= 0


# Partitioner options, sticky partitioners, record timestamps --------------------------------------


BATCH = 1000
TIMEOUT = 20


@pytest.mark.parametrize(("adaptive", "least", "most"), [(True, 1, 35), (False, 20, 80)])
def test_adaptive_partitioning_prefers_partitions_with_short_queues(
    adaptive: bool, least: int, most: int
) -> None:
    cluster = ScriptedCluster(topics={"t": [1, 2]})
    cluster.add(1)
    cluster.add(2).next(ApiKey.PRODUCE, *[silence] * 1000)
    options: dict[str, Any] = {"partitioner_adaptive_partitioning_enable": adaptive}
    producer = producer_before(cluster, batch_size=BATCH, **options)
    counts = Counter[int]()
    for _ in range(100):  # each fills a batch, so each draws a new partition
        future = producer.send("t", bytes(BATCH))
        counts[future.topic_partition.partition] += 1
        if future.topic_partition.partition == 0:
            future.get(TIMEOUT)
    producer.close(timeout=0)
    assert least <= counts[1] <= most


def test_partitioner_ignore_keys_sends_all_keys_to_one_partition() -> None:
    options: dict[str, Any] = {"partitioner_ignore_keys": True, "linger_ms": LATER}
    with producer_before(cluster_of(50), **options) as producer:
        futures = [producer.send("t", b"", key=b"%d" % number) for number in range(5)]
    assert len({future.get(0).partition for future in futures}) == 1


PARTITIONS = 4
LATER = 60_000


class RoundRobin:
    """Sticks to a partition and moves to the next one for a new batch."""

    def __init__(self) -> None:
        self.current = 0
        self.left: list[int] = []

    def choose(self, topic: TopicInfo, key: Any) -> int:
        return self.current

    def on_new_batch(self, topic: TopicInfo, previous: int) -> None:
        self.left.append(previous)
        self.current = (previous + 1) % len(topic)

    def appended(self, topic: TopicInfo, partition: int, nbytes: int, batch_ready: bool) -> None:
        pass


def producer_with(partitioner: RoundRobin, **options: Any) -> KafkaProducer:
    return producer_before(
        cluster_of(PARTITIONS), partitioner=partitioner, linger_ms=LATER, **options
    )


@pytest.mark.parametrize("key", [None, b"k"])
def test_each_new_batch_goes_to_another_partition(key: bytes | None) -> None:
    """As in Java, ``on_new_batch`` is called for records with a key as well."""
    partitioner = RoundRobin()
    with producer_with(partitioner, batch_size=500) as producer:
        futures = [producer.send("t", bytes(100), key=key) for _ in range(200)]
        producer.flush()
    counts = Counter(future.get().partition for future in futures)
    assert set(counts) == set(range(PARTITIONS))
    assert len(partitioner.left) > 20
    assert partitioner.left == [number % PARTITIONS for number in range(len(partitioner.left))]
    before = len(partitioner.left)
    with producer_with(partitioner, batch_size=500) as producer:
        producer.send_many("t", [bytes(100)] * 200)
        producer.flush()
    assert len(partitioner.left) > before + 20, "bulk calls change the partition as well"


def test_on_new_batch_is_not_called_while_the_batch_has_room() -> None:
    partitioner = RoundRobin()
    with producer_with(partitioner) as producer:
        for _ in range(10):
            producer.send("t", b"v")
        producer.send("t", b"v", partition=3)
    assert partitioner.left == [0]


class Broken(RoundRobin):
    def on_new_batch(self, topic: TopicInfo, previous: int) -> None:
        raise ZeroDivisionError("no partition")


def test_an_exception_of_on_new_batch_is_a_partition_error() -> None:
    with producer_with(Broken()) as producer:
        with pytest.raises(PartitionError, match="ZeroDivisionError: no partition"):
            producer.send("t", b"v")
        assert producer.flush().pending == 0


RECORDS = 20_000


class ClockInPython(KafkaProducer):
    """Its clock releases the GIL before it returns the time."""

    def _record_clock(self) -> RecordClock:
        return RecordClock(slow_time)


def slow_time() -> int:
    time.sleep(1e-6)
    return time.time_ns() // 1_000_000


def produced(
    kind: type[KafkaProducer] = KafkaProducer, **options: Any
) -> tuple[KafkaProducer, ScriptedCluster]:
    cluster = cluster_of()
    transport = lambda: MemoryBackend(cluster.listeners)  # noqa: E731
    return kind(bootstrap_servers="broker-1:9092", transport=transport, **options), cluster


def stored_times(cluster: ScriptedCluster) -> list[int]:
    ((_, batches),) = cluster.log.items()
    return [record.timestamp for batch in batches for record in batch.records()]


def test_timestamps_do_not_decrease_across_the_ways_to_send() -> None:
    producer, cluster = produced(linger_ms=5)
    headers: list[Any] = [None, {"by": b"the Python path"}]
    with producer:
        for n in range(RECORDS):
            if n % 500 == 0:
                producer.send_many("t", [b"bulk path"] * 3)
            producer.send("t", b"value", None, headers[n % 3 == 0])
    times = stored_times(cluster)
    assert len(times) == RECORDS + 3 * RECORDS // 500
    assert all(earlier <= later for earlier, later in pairwise(times))


def test_send_and_bulk_calls_do_not_mix_if_the_clock_releases_the_gil() -> None:
    """A bulk call writes while the clock of ``send`` runs."""
    producer, cluster = produced(ClockInPython)
    bulk = pa.record_batch({"value": [b"%032d" % n for n in range(50_000)]})
    single, bulk_calls = 3_000, 6
    with producer:
        producer.send("t", b"first").get(20)

        def send_bulks() -> None:
            for _ in range(bulk_calls):
                producer.send_arrow("t", bulk)

        other = threading.Thread(target=send_bulks)
        other.start()
        for n in range(single):
            producer.send("t", b"single %d" % n)
        other.join()
    ((_, batches),) = cluster.log.items()
    values = [bytes(record.value or b"") for batch in batches for record in batch.records()]
    assert len(values) == 1 + single + bulk_calls * bulk.num_rows
    assert values.count(b"%032d" % 49_999) == bulk_calls
    singles = [value for value in values if value.startswith(b"single")]
    assert singles == [b"single %d" % n for n in range(single)]
