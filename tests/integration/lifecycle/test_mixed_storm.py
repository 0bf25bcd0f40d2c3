"""All calls of a producer by many threads, also during close: records once each, in order.

Without a GIL this tests the locks of the compiled code; with one, thread switches every few
microseconds reveal the same races.
"""

from __future__ import annotations

import random
import sys
import threading
from collections import Counter, deque
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from kprod import KafkaProducer
from kprod.errors import KprodError, ProducerClosedError
from kprod.types import DeliveryReport
from kprod_ext.futures import FutureRecordMetadata
from tests.support.broker_process import BrokerProcess
from tests.support.committed_records import read_back
from tests.support.tier import CAMPAIGN, one_of

THREADS = 6
RECORDS = 30_000 if CAMPAIGN else 3_000
TOPICS = {"keyed": 6, "spread": 12}
BUFFER = 400_000
CLOSERS = 10
RECENT = 300


class Load:
    def __init__(self, producer: KafkaProducer) -> None:
        self.producer = producer
        self.stopped = threading.Event()
        self.recent: list[FutureRecordMetadata | None] = [None] * RECENT  # of all threads
        self.spread: deque[int] = deque()  # numbers of records sent to that topic
        self.reported: deque[int] = deque()  # the thread of each reported record
        self.with_callback: deque[int] = deque()
        self.errors: deque[BaseException] = deque()

    def threads(self, works: list[Callable[[], None]]) -> list[threading.Thread]:
        """Started threads; exceptions are collected."""

        def run(work: Callable[[], None]) -> None:
            try:
                work()
            except BaseException as error:
                self.errors.append(error)

        threads = [threading.Thread(target=run, args=(work,)) for work in works]
        for thread in threads:
            thread.start()
        return threads

    def send(self, thread: int) -> None:
        """Send RECORDS records singly and in bulk, and use their futures in every way."""
        rng, number = random.Random(thread), 0
        before: list[FutureRecordMetadata] = []
        while number < RECORDS:
            chance = rng.random()
            if chance < 0.85:
                future = self._send_one(thread, number, headers=chance < 0.1)
                before.append(future)
                number += 1
                if chance > 0.75:
                    self.with_callback.append(thread)
                    future.add_both(lambda _: self.reported.append(thread))
                if chance < 0.003:
                    future.get(timeout=30)
            elif chance < 0.9:
                values = [value_of(thread, n) for n in range(number, min(number + 99, RECORDS))]
                number += len(values)
                sent = self.producer.send_many("keyed", values, keys=[b"%d" % thread] * len(values))
                assert sent.progress().failed == 0
                if chance < 0.855:
                    assert sent.get(timeout=30).records == len(values)
            elif chance < 0.902:
                self.producer.flush(timeout=30)
                assert all(future.is_done for future in before)
                before.clear()
            else:
                for other in list(self.recent):
                    assert other is None or not other.failed()
                    if other is not None and other.succeeded():
                        assert other.get(timeout=0).topic == "keyed"

    def _send_one(self, thread: int, number: int, *, headers: bool) -> FutureRecordMetadata:
        future = self.producer.send(
            "keyed",
            value_of(thread, number),
            b"%d" % thread,
            headers=[("h\u00e9", b"v")] if headers else None,
        )
        self.recent[number % RECENT] = future
        return future

    def scatter(self) -> None:
        """Send records without a key, so that threads share and replace a sticky partition."""
        while not self.stopped.is_set():
            for _ in range(50):
                self.producer.send("spread", b"one")
            self.producer.send_many("spread", [b"some"] * 50)
            self.spread.append(100)

    def watch(self) -> None:
        while not self.stopped.wait(0.001):
            assert self.producer.metrics()["producer-metrics"]["buffer-total-bytes"] == BUFFER
            assert len(self.producer.partitions_for("keyed")) == TOPICS["keyed"]
            assert self.producer.bootstrap_connected()  # may still be False before

    def send_until_closed(self) -> None:
        try:
            while True:
                self.producer.send("spread", b"late", b"key")
                self.producer.send_many("spread", [b"late"] * 20)
        except ProducerClosedError:
            pass


def value_of(thread: int, number: int) -> bytes:
    return b"%d %d %s" % (thread, number, b"x" * (number % 90))


@pytest.fixture
def quick_switches() -> Iterator[None]:
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    yield
    sys.setswitchinterval(before)


@pytest.mark.usefixtures("quick_switches")
@pytest.mark.parametrize("codec", one_of("lz4", None))
def test_concurrent_sends_are_delivered_once_and_in_order(tmp_path: Path, codec: Any) -> None:
    with BrokerProcess(tmp_path, TOPICS) as broker:
        producer = KafkaProducer(
            bootstrap_servers=broker.bootstrap_servers,
            buffer_memory=BUFFER,
            batch_size=4096,
            compression_type=codec,
            metadata_max_age_ms=500,
            metrics_sample_window_ms=50,
        )
        load = Load(producer)
        background = load.threads([load.scatter, load.scatter, load.watch])
        senders = load.threads([partial(load.send, thread) for thread in range(THREADS)])
        for thread in senders:
            thread.join()
        load.stopped.set()
        for thread in background:
            thread.join()
        assert not load.errors
        total = THREADS * RECORDS + sum(load.spread)
        assert producer.flush(timeout=60) == DeliveryReport(total, 0, 0)
        assert Counter(load.reported) == Counter(load.with_callback)
        assert producer.metrics()["producer-metrics"]["buffer-available-bytes"] == BUFFER
        report = close_while_sending(load)
        assert not load.errors
        assert (report.failed, report.pending) == (0, 0)
        assert producer.metrics()["producer-metrics"]["buffer-available-bytes"] == BUFFER
        stored = check(broker.bootstrap_servers)
    assert stored == report.delivered - THREADS * RECORDS


def close_while_sending(load: Load) -> DeliveryReport:
    """Close ten times concurrently while every thread sends; all get the same report."""
    reports: deque[DeliveryReport] = deque()
    threads = load.threads([load.send_until_closed] * THREADS)
    threads += load.threads([lambda: reports.append(load.producer.close())] * CLOSERS)
    for thread in threads:
        thread.join()
    assert len(reports) == CLOSERS
    assert set(reports) == {load.producer.close()}
    with pytest.raises(KprodError):
        load.producer.send("keyed", b"too late")
    return load.producer.close()


def check(bootstrap: str) -> int:
    """Check ``keyed``: once each, in order per thread. Returns the record count of ``spread``."""
    next_numbers: Counter[int] = Counter()
    for stored in read_back(bootstrap, "keyed", TOPICS["keyed"], seconds=60):
        thread, number, _ = (stored.value or b"").split(b" ")
        assert int(number) == next_numbers[int(thread)], "out of order, duplicated or lost"
        next_numbers[int(thread)] += 1
    assert next_numbers == dict.fromkeys(range(THREADS), RECORDS)
    return sum(1 for _ in read_back(bootstrap, "spread", TOPICS["spread"], seconds=60))
