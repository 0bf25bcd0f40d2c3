"""A coordinator whose connection is full of records gets the questions of a transaction."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

from kprod import KafkaProducer, KprodError
from kprod.broker import EmbeddedBroker
from kprod.broker.faults import Fault
from kprod.broker.protocol.api_key import ApiKey

PARTITIONS = 36
SLOW = 0.02
"""Seconds that a Produce request takes: five are always under way then."""


@contextmanager
def records_without_end(producer: KafkaProducer) -> Iterator[None]:
    """Sends to all partitions meanwhile, by a thread of its own."""
    over = threading.Event()
    full = threading.Event()

    def send() -> None:
        number = 0
        while not over.is_set():
            producer.send("busy", bytes(100), partition=number % PARTITIONS)
            number += 1
            if number % 5 == 0:
                over.wait(0.001)
            if number == 500:
                full.set()

    thread = threading.Thread(target=send)
    thread.start()
    try:
        assert full.wait(30)
        yield
    finally:
        over.set()
        thread.join(30)


def test_a_group_hears_of_offsets_while_records_fill_its_connection() -> None:
    topics = {"busy": PARTITIONS, "in": 1}
    with (
        EmbeddedBroker(nodes=1, topics=topics) as broker,
        KafkaProducer(
            bootstrap_servers=broker.bootstrap_servers, transactional_id="tx"
        ) as producer,
    ):
        producer.init_transactions()
        producer.begin_transaction()
        producer.send("in", b"first").get(20)
        broker.faults.add(Fault(api=ApiKey.PRODUCE, delay=SLOW, times=None))
        failure: KprodError | None = None
        with records_without_end(producer):
            try:
                producer.send_offsets_to_transaction({("in", 0): 5}, "group", timeout=8)
            except KprodError as error:
                failure = error
        assert failure is None
        producer.abort_transaction(30)
