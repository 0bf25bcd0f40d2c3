"""The time that records get which were sent without one."""

from __future__ import annotations

import threading
import time
from itertools import pairwise
from typing import Any

import pyarrow as pa

from kprod import KafkaProducer
from kprod.transport.memory import MemoryBackend
from kprod_ext import RecordClock
from tests.support.scripted_cluster import ScriptedCluster
from tests.support.scripted_producer import cluster_of

RECORDS = 20_000


class ClockInPython(KafkaProducer):
    """Its clock lets other threads run before it tells the time."""

    def _record_clock(self) -> RecordClock:
        return RecordClock(slow_time)


def slow_time() -> int:
    time.sleep(1e-6)
    return time.time_ns() // 1_000_000


def produced(
    kind: type[KafkaProducer] = KafkaProducer, **options: Any
) -> tuple[KafkaProducer, ScriptedCluster]:
    """A producer and its cluster."""
    cluster = cluster_of()
    transport = lambda: MemoryBackend(cluster.listeners)  # noqa: E731
    return kind(bootstrap_servers="broker-1:9092", transport=transport, **options), cluster


def stored_times(cluster: ScriptedCluster) -> list[int]:
    """Of all records, in the order of the log."""
    ((_, batches),) = cluster.log.items()
    return [record.timestamp for batch in batches for record in batch.records()]


def test_time_does_not_go_back_between_the_ways_to_send() -> None:
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


def test_a_clock_that_lets_others_run_keeps_two_writers_apart() -> None:
    """A bulk call writes without the GIL, which the clock of ``send`` has released."""
    producer, cluster = produced(ClockInPython)
    bulk = pa.record_batch({"value": [b"%032d" % n for n in range(50_000)]})
    single, rounds = 3_000, 6
    with producer:
        producer.send("t", b"first").get(20)

        def send_bulks() -> None:
            for _ in range(rounds):
                producer.send_arrow("t", bulk)

        other = threading.Thread(target=send_bulks)
        other.start()
        for n in range(single):
            producer.send("t", b"single %d" % n)
        other.join()
    ((_, batches),) = cluster.log.items()
    values = [bytes(record.value or b"") for batch in batches for record in batch.records()]
    assert len(values) == 1 + single + rounds * bulk.num_rows
    assert values.count(b"%032d" % 49_999) == rounds
    singles = [value for value in values if value.startswith(b"single")]
    assert singles == [b"single %d" % n for n in range(single)]
