"""flush() waits for what was sent before it, no longer than it may, whoever sends meanwhile."""

from __future__ import annotations

import threading
from itertools import count
from typing import Any

import pytest

from kprod import KafkaProducer
from kprod.errors import KprodTimeoutError
from kprod.types import DeliveryReport
from kprod_ext.futures import FutureRecordMetadata
from tests.integration.lifecycle.account import Account
from tests.support.broker_process import BrokerProcess
from tests.support.tier import one_of

LONG = 40.0
PARTITIONS = 4
TOPIC = "flushing"
THREADS = 8


@pytest.mark.parametrize("hangs", one_of(True, False))
def test_records_stay_queued_when_brokers_cannot_be_reached(
    broker: BrokerProcess, hangs: bool
) -> None:
    with KafkaProducer(bootstrap_servers=broker.bootstrap_servers) as producer:
        producer.partitions_for(TOPIC)
        account = Account(producer, TOPIC, PARTITIONS)
        if hangs:
            broker.freeze()
        else:
            broker.kill()
        account.send(1000)
        for _ in range(2):
            with pytest.raises(KprodTimeoutError, match=r"1,000 records pending after 0\.1 s"):
                producer.flush(0.1)
        assert not any(future.is_done for future in account.futures)
        if hangs:
            broker.thaw()
        else:
            broker.start()
        assert producer.flush(LONG) == DeliveryReport(1000, 0, 0)
        assert account.check_against(broker.bootstrap_servers).stored == 1000


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
