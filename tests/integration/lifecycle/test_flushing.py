"""flush() waits for what was sent before it, no longer than it may, whoever sends meanwhile."""

from __future__ import annotations

import threading
from itertools import count
from typing import Any

from kprod import KafkaProducer
from kprod.types import DeliveryReport
from kprod_ext.futures import FutureRecordMetadata
from tests.support.broker_process import BrokerProcess

LONG = 40.0
PARTITIONS = 4
TOPIC = "flushing"
THREADS = 8


def test_flush_among_threads_that_send(broker: BrokerProcess) -> None:
    """Each of many flushes waits for all that its thread has sent, and none waits for ever."""
    sent = 0
    over = threading.Event()
    unfinished: list[FutureRecordMetadata] = []

    def send_and_flush(producer: KafkaProducer, thread: int) -> None:
        futures: list[FutureRecordMetadata] = []
        for number in count():
            if over.is_set():
                break
            futures.append(producer.send(TOPIC, b"%d-%d" % (thread, number)))
            if number % 500 == 499:
                producer.flush(LONG)
                unfinished.extend(future for future in futures if not future.is_done)
        lengths.append(len(futures))

    lengths: list[int] = []
    options: Any = {"linger_ms": 20, "buffer_memory": 1_000_000}
    with KafkaProducer(bootstrap_servers=broker.bootstrap_servers, **options) as producer:
        threads = [
            threading.Thread(target=send_and_flush, args=(producer, n)) for n in range(THREADS)
        ]
        for thread in threads:
            thread.start()
        flushes = 0
        while flushes < 20 or sent < 20_000:
            report = producer.flush(LONG)
            flushes, sent = flushes + 1, report.delivered
        over.set()
        for thread in threads:
            thread.join(LONG)
        assert producer.flush(LONG) == DeliveryReport(sum(lengths), 0, 0)
    assert unfinished == []
