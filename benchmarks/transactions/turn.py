"""One Python client's turn: transaction after transaction, in a process of its own.

    python -m benchmarks.transactions.turn "kprod send" '{"transactions": 300, ...}' HOST:PORT TOPIC

prints as a line of JSON how long all of them took (``seconds``), the CPU time of the process
meanwhile (``cpu_seconds``), and how long each call of commit took (``commits``, in seconds).
Options are the defaults, but for the address and the transactional id, which is the name of the
topic. ``Transactions.java`` does the same.
"""

from __future__ import annotations

import gc
import json
import sys
import time
from collections.abc import Callable, Sequence
from itertools import cycle, islice
from typing import Any

from benchmarks.transactions.load import Load
from kprod.cli.figures import CostMeter
from kprod.cli.perf.workload import letters

Send = Callable[[Sequence[bytes]], None]


def kprod_producer(bootstrap_servers: str, topic: str) -> Any:
    """kprod's, with its identity."""
    from kprod import KafkaProducer

    producer = KafkaProducer(bootstrap_servers=bootstrap_servers, transactional_id=topic)
    producer.init_transactions()
    return producer


def confluent_producer(bootstrap_servers: str, topic: str) -> Any:
    """confluent-kafka's, with its identity."""
    from confluent_kafka import Producer

    producer = Producer({"bootstrap.servers": bootstrap_servers, "transactional.id": topic})
    producer.init_transactions()
    return producer


def one_by_one(producer: Any, topic: str) -> Send:
    """``send`` of each record; its future is dropped, for the commit tells."""

    def send(values: Sequence[bytes]) -> None:
        send_one = producer.send
        for value in values:
            send_one(topic, value)

    return send


def together(producer: Any, topic: str) -> Send:
    """``send_many`` of all records of a transaction."""

    def send(values: Sequence[bytes]) -> None:
        producer.send_many(topic, values)

    return send


def produce(producer: Any, topic: str) -> Send:
    """``produce`` of each record, without a callback: the commit tells."""

    def send(values: Sequence[bytes]) -> None:
        produce_one = producer.produce
        for value in values:
            produce_one(topic, value)

    return send


SIDES: dict[str, tuple[Callable[[str, str], Any], Callable[[Any, str], Send]]] = {
    "kprod send": (kprod_producer, one_by_one),
    "kprod send_many": (kprod_producer, together),
    "confluent produce": (confluent_producer, produce),
}
"""The Python clients by name: what makes the producer, and what sends with it."""


def run(side: str, load: Load, bootstrap_servers: str, topic: str) -> dict[str, Any]:
    """Take the turn in this process; the figures by name."""
    make, sending = SIDES[side]
    producer = make(bootstrap_servers, topic)
    send = sending(producer, topic)
    values = list(islice(cycle(letters(load.size)), load.records))
    _transact(producer, send, values, load.warm_up)
    gc.collect()
    started = CostMeter()
    commits = _transact(producer, send, values, load.transactions)
    cost = started.read()
    getattr(producer, "close", producer.flush)()
    return {"seconds": cost.seconds, "cpu_seconds": cost.cpu_seconds, "commits": commits}


def _transact(producer: Any, send: Send, values: Sequence[bytes], times: int) -> list[float]:
    """Seconds of each commit."""
    now, commits = time.perf_counter, []
    for _ in range(times):
        producer.begin_transaction()
        send(values)
        asked = now()
        producer.commit_transaction()
        commits.append(now() - asked)
    return commits


if __name__ == "__main__":
    print(json.dumps(run(sys.argv[1], Load(**json.loads(sys.argv[2])), *sys.argv[3:])))
