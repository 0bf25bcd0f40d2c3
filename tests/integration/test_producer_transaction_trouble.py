"""A call of a transaction that takes too long names what it waits for now, and nothing else."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest

from kprod import KafkaProducer
from kprod.broker import ApiKey, EmbeddedBroker, Fault
from kprod.errors import BrokerError, TransactionTimeoutError

LONG = 30.0
SOON = 0.3


@pytest.fixture
def producer(broker: EmbeddedBroker) -> Iterator[KafkaProducer]:
    servers = broker.bootstrap_servers
    with KafkaProducer(bootstrap_servers=servers, transactional_id="x") as made:
        yield made


def test_a_code_that_is_answered_again_and_again_is_the_cause(
    broker: EmbeddedBroker, producer: KafkaProducer
) -> None:
    loading = Fault(api=ApiKey.INIT_PRODUCER_ID, error=14, times=None)
    with broker.faults.active(loading):
        with pytest.raises(TransactionTimeoutError):
            producer.init_transactions(SOON)  # it goes on, and may not have been answered yet
        while loading.hits < 2:
            time.sleep(0.01)
        with pytest.raises(TransactionTimeoutError, match="COORDINATOR_LOAD_IN_PROGRESS") as caught:
            producer.init_transactions(SOON)
    assert isinstance(caught.value.__cause__, BrokerError)
    producer.init_transactions(LONG)


def test_a_trouble_that_has_passed_is_no_cause(
    broker: EmbeddedBroker, producer: KafkaProducer
) -> None:
    broker.faults.add(Fault(api=ApiKey.INIT_PRODUCER_ID, cut_at=0))
    producer.init_transactions(LONG)
    producer.begin_transaction()
    slow = Fault(api=ApiKey.PRODUCE, delay=2 * SOON)
    with broker.faults.active(slow):
        producer.send("t", b"v")
        with pytest.raises(TransactionTimeoutError) as caught:
            producer.commit_transaction(SOON)
    assert caught.value.__cause__ is None
    producer.commit_transaction(LONG)


def test_a_transaction_hears_of_an_init_that_has_ended_too_late(
    broker: EmbeddedBroker, producer: KafkaProducer
) -> None:
    broker.faults.add(Fault(api=ApiKey.INIT_PRODUCER_ID, delay=SOON))
    with pytest.raises(TransactionTimeoutError):
        producer.init_transactions(0)
    producer.await_producer_id(LONG)
    with producer.transaction(LONG):
        producer.send("t", b"v")
    assert len(broker.records("t", committed=True)) == 1
