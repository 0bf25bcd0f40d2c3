"""The process under test: producers for the whole soak, and short-lived ones."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

from kprod import KafkaProducer
from kprod.types import DeliveryReport
from tests.support.numbered_records import numbered

VALUE_BYTES = 100
SLICE_SECONDS = 0.05
"""Due records are sent in bursts; the latency of the last one of each is measured."""
IN_TRANSACTION = 20
BRIEF = 20
"""Short-lived producers per phase: enough to detect a leak of a kilobyte each."""
LEFT_SECONDS = 90.0
"""Limit for the last records of a phase, after a broker's restart."""
LASTING: dict[str, Any] = {
    "allow_auto_create_topics": False,
    "linger_ms": 5,
    "metadata_max_age_ms": 10_000,
    "metadata_max_idle_ms": 30_000,
    "reconnect_backoff_max_ms": 500,
}
"""A deleted topic is forgotten within half a minute, and not created again."""


class Load:
    """Each command sends numbered records to a topic, and returns when all are stored.

    Options of ``KafkaProducer``: ``plain`` without security, ``guarded`` with mTLS and login.
    """

    def __init__(self, plain: Mapping[str, Any], guarded: Mapping[str, Any]) -> None:
        self._plain = {**LASTING, **plain}
        self._producers = {
            "plain": KafkaProducer(**self._plain),
            "guarded": KafkaProducer(**LASTING, **guarded),
        }
        self._transactional = KafkaProducer(transactional_id="soak", **self._plain)
        self._transactional.init_transactions()

    def send(
        self, producer: str, topic: str, partitions: int, seconds: float, rate: float
    ) -> dict[str, Any]:
        """Send ``rate`` records per second; their number, and latencies in milliseconds."""
        return self._send(self._producers[producer], topic, partitions, seconds, rate)

    def send_briefly(
        self, topic: str, partitions: int, seconds: float, rate: float
    ) -> dict[str, Any]:
        """The same with a series of short-lived producers."""
        sent, milliseconds = 0, list[float]()
        for _ in range(BRIEF):
            with KafkaProducer(**self._plain) as producer:
                result = self._send(producer, topic, partitions, seconds / BRIEF, rate, first=sent)
            sent += result["sent"]
            milliseconds += result["milliseconds"]
        return {"sent": sent, "milliseconds": milliseconds}

    def transact(self, topic: str, partitions: int, transactions: int) -> dict[str, Any]:
        """Transactions of 20 records, of which every third is aborted; the committed numbers."""
        producer = self._transactional
        committed: list[int] = []
        for each in range(transactions):
            numbers = range(each * IN_TRANSACTION, (each + 1) * IN_TRANSACTION)
            producer.begin_transaction()
            for number in numbers:
                producer.send(topic, numbered(number), partition=number % partitions)
            if each % 3 == 2:
                producer.abort_transaction()
            else:
                producer.commit_transaction()
                committed += numbers
        return {"committed": committed}

    def close(self) -> dict[str, float]:
        """Close every producer; the numbers of retried records and of connections."""
        metrics = [each.metrics()["producer-metrics"] for each in self._producers.values()]
        for each in (*self._producers.values(), self._transactional):
            each.close()
        return {
            name: sum(float(of_one[name]) for of_one in metrics)
            for name in ("record-retry-total", "connection-creation-total")
        }

    def _send(
        self,
        producer: KafkaProducer,
        topic: str,
        partitions: int,
        seconds: float,
        rate: float,
        first: int = 0,
    ) -> dict[str, Any]:
        took: list[float] = []
        sent, started = 0, time.monotonic()
        while (passed := time.monotonic() - started) < seconds:
            future = None
            while sent < passed * rate:
                number = first + sent
                value = numbered(number, VALUE_BYTES)
                future = producer.send(topic, value, partition=number % partitions)
                sent += 1
            if future is not None:
                began = time.monotonic()
                future.add_both(lambda _, began=began: took.append(time.monotonic() - began))
            time.sleep(SLICE_SECONDS)
        report: DeliveryReport = producer.flush(timeout=LEFT_SECONDS)
        assert (report.failed, report.pending) == (0, 0), report
        return {"sent": sent, "milliseconds": [1000 * each for each in took]}
