"""One producer, and many threads that produce, poll and flush: each record has one report."""

from __future__ import annotations

import threading
from collections import Counter
from concurrent.futures import ThreadPoolExecutor

import pytest

from kprod.broker import EmbeddedBroker
from kprod.confluent import Producer

LONG = 20.0
THREADS = 4
RECORDS = 1_000
ROUNDS = 4
TOPICS = [f"device-{number}" for number in range(4)]


class ThreadReports:
    """Counts the reports of each thread's records, and keeps the errors."""

    def __init__(self) -> None:
        self.heard: Counter[int] = Counter()
        self.errors: list[object] = []
        self._lock = threading.Lock()

    def add(self, thread: int, error: object) -> None:
        with self._lock:
            self.heard[thread] += 1
            if error is not None:
                self.errors.append(error)


def produce_all(producer: Producer, thread: int, reports: ThreadReports) -> None:
    for number in range(RECORDS):
        producer.produce(
            TOPICS[number % len(TOPICS)],
            b"%d" % number,
            b"%d" % number if number % 2 else None,
            on_delivery=lambda error, _: reports.add(thread, error),
        )
        if number % 50 == 0:
            producer.poll(0)
        if number % 501 == 0:
            producer.flush(0.001)


@pytest.mark.threads
def test_each_record_of_each_thread_has_one_report() -> None:
    """Small batches: without a GIL, threads that replaced what others read ended the process."""
    with EmbeddedBroker(topics=dict.fromkeys(TOPICS, 3)) as broker:
        servers = {"bootstrap.servers": broker.bootstrap_servers, "batch.size": 2_000}
        for _ in range(ROUNDS):
            reports = ThreadReports()
            with Producer(servers) as producer, ThreadPoolExecutor(THREADS) as pool:
                producer.list_topics(timeout=LONG)
                calls = [pool.submit(produce_all, producer, n, reports) for n in range(THREADS)]
                for call in calls:
                    call.result(LONG)
                assert producer.flush(LONG) == 0
            assert reports.heard == dict.fromkeys(range(THREADS), RECORDS)
            assert reports.errors == []
