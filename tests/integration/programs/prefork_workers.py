"""A server that forks its workers first, each with a producer of its own."""

from __future__ import annotations

import json
import multiprocessing
import sys
from multiprocessing.queues import Queue
from typing import Any

from confluent_kafka import KafkaError, KafkaException, Producer

WORKERS, RECORDS = 4, 50


def work(number: int, counts: Queue[Any]) -> None:
    stored: list[int] = []
    refused: list[int] = []

    def delivered(error: Any, message: Any) -> None:
        (refused if error else stored).append(message.partition())

    producer = Producer({"bootstrap.servers": sys.argv[1], "acks": "all"})
    for record in range(RECORDS):
        producer.produce("forked", b"%d-%d" % (number, record), on_delivery=delivered)
        producer.poll(0)
    try:
        producer.produce("forked", bytes(2_000_000), on_delivery=delivered)
    except KafkaException as error:
        if error.args[0].code() == KafkaError.MSG_SIZE_TOO_LARGE:
            refused.append(-1)
    left = producer.flush(30)
    counts.put((number, len(stored), len(refused), left))


if __name__ == "__main__":
    forking = multiprocessing.get_context("fork")
    counts = forking.Queue()
    workers = [forking.Process(target=work, args=(number, counts)) for number in range(WORKERS)]
    for worker in workers:
        worker.start()
    told = sorted(counts.get(timeout=60) for _ in workers)
    for worker in workers:
        worker.join()
    print(json.dumps([told, [worker.exitcode for worker in workers]]))
