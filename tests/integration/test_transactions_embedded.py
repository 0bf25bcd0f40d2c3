"""Transactions on the embedded broker: outcomes of context managers, and slow calls."""

from __future__ import annotations

import asyncio
import itertools
import os
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import pytest
from confluent_kafka import Consumer, TopicPartition

from kprod import (
    IllegalStateError,
    KafkaProducer,
    KprodError,
    NextStep,
    Persisted,
    ProducerFencedError,
    TransactionTimeoutError,
    aio,
)
from kprod.admin import open_transactions
from kprod.broker import ApiKey, EmbeddedBroker, Fault, TransactionConfig
from kprod.confluent import KafkaException
from kprod.confluent import Producer as ConfluentProducer
from kprod.errors import BrokerError, TransactionAbortedError
from kprod.transactional.two_phase_commit import TwoPhaseCommit
from tests.support.committed_records import committed, group_offset
from tests.support.interruption import Interrupted, interruptible
from tests.support.waiting import await_true

TOPIC = "orders"
BOTH_ENDS = pytest.mark.parametrize(
    ("call", "outcome"), [("commit_transaction", "committed"), ("abort_transaction", "aborted")]
)


BROKER = {"topics": {TOPIC: 2, "t": 1}}
LONG = 30.0
SOON = 0.3


def options(broker: EmbeddedBroker) -> dict[str, Any]:
    return {"bootstrap_servers": broker.bootstrap_servers, "transactional_id": "tx"}


@pytest.fixture
def producer(broker: EmbeddedBroker) -> Iterator[KafkaProducer]:
    with KafkaProducer(**options(broker)) as made:
        yield made


@pytest.fixture
def ready(producer: KafkaProducer) -> KafkaProducer:
    """A producer that has its producer id."""
    producer.init_transactions(LONG)
    return producer


def stored(broker: EmbeddedBroker) -> list[bytes]:
    return committed(broker.bootstrap_servers, TOPIC, 2)


@BOTH_ENDS
def test_the_outcome_of_a_transaction_ended_inside_the_context_manager_is_known(
    producer: KafkaProducer, call: str, outcome: str
) -> None:
    for failing in (True, False):
        transaction = producer.transaction()
        with suppress(ZeroDivisionError, IllegalStateError), transaction:
            producer.send(TOPIC, b"v")
            getattr(producer, call)()
            if failing:
                raise ZeroDivisionError
        assert transaction.outcome == outcome


def test_the_outcome_is_unknown_if_commit_timed_out(
    broker: EmbeddedBroker, ready: KafkaProducer
) -> None:
    broker.faults.add(Fault(api=ApiKey.END_TXN, delay=0.5))
    transaction = ready.transaction()

    def end() -> None:
        ready.send(TOPIC, b"v")
        ready.commit_transaction(timeout=0)

    with pytest.raises(TransactionTimeoutError) as caught, transaction:
        end()
    assert caught.value.next_step is NextStep.RETRY_CALL
    assert transaction.outcome == "unknown"
    ready.commit_transaction(30)
    assert stored(broker) == [b"v"]


@pytest.mark.parametrize("commits_inside", [False, True])
def test_an_unconfirmed_commit_of_a_fenced_producer_is_unknown(
    broker: EmbeddedBroker, commits_inside: bool
) -> None:
    """The coordinator commits, its response is lost, and another producer takes over the id."""
    with KafkaProducer(**options(broker), client_id="first", request_timeout_ms=1_000) as producer:
        producer.init_transactions()
        transaction = producer.transaction(timeout=30)
        lost = broker.faults.add(Fault(api=ApiKey.END_TXN, client_id="first", drop=True))

        def take_over() -> None:
            await_true(lambda: lost.hits, 30)
            with KafkaProducer(**options(broker)) as other:
                other.init_transactions(30)

        taking = threading.Thread(target=take_over)
        taking.start()
        with suppress(ProducerFencedError), transaction:
            producer.send(TOPIC, b"v").get(20)
            if commits_inside:
                producer.commit_transaction(30)
        taking.join()
        assert producer.can_only_be_closed
    assert transaction.outcome == "unknown"
    assert stored(broker) == [b"v"]


@BOTH_ENDS
def test_the_outcome_is_known_if_the_transaction_ended_after_the_call_timed_out(
    broker: EmbeddedBroker, producer: KafkaProducer, call: str, outcome: str
) -> None:
    for failing in (True, False):
        transaction = producer.transaction()
        with suppress(ZeroDivisionError, IllegalStateError), transaction:
            producer.send(TOPIC, b"v").get(20)
            broker.faults.add(Fault(api=ApiKey.END_TXN, delay=0.2))
            with pytest.raises(TransactionTimeoutError):
                getattr(producer, call)(timeout=0)
            while producer.ended_transaction != outcome:
                time.sleep(0.01)
            if failing:
                raise ZeroDivisionError
        assert transaction.outcome == outcome
        with suppress(IllegalStateError):  # the abort at the end of the block may have confirmed it
            getattr(producer, call)(30)


@pytest.mark.parametrize("where", ["record", "offsets", "application"])
def test_the_next_transaction_waits_for_an_unconfirmed_abort(
    broker: EmbeddedBroker, ready: KafkaProducer, where: str
) -> None:
    broker.faults.add(Fault(api=ApiKey.END_TXN, delay=1.0, times=1))
    if where == "record":
        broker.faults.add(Fault(api=ApiKey.PRODUCE, error=29, times=1))
    transaction = ready.transaction(timeout=0.2)

    def fail() -> None:
        future = ready.send(TOPIC, b"lost")
        if where == "record":
            return
        future.get(30)
        if where == "application":
            raise ZeroDivisionError
        ready.send_offsets_to_transaction({(TOPIC, 0): 7}, "group", timeout=0)

    with pytest.raises((KprodError, ZeroDivisionError)) as caught, transaction:
        fail()
    assert transaction.outcome == "aborted"
    assert "has not confirmed the end" in "".join(caught.value.__notes__)
    if isinstance(caught.value, KprodError):
        assert caught.value.next_step is NextStep.BEGIN_AGAIN
    with ready.transaction(timeout=30):
        ready.send(TOPIC, b"v")
    assert stored(broker) == [b"v"]


def test_the_error_of_an_aborted_record_says_that_it_may_be_stored(broker: EmbeddedBroker) -> None:
    with KafkaProducer(**options(broker), request_timeout_ms=500) as producer:
        producer.init_transactions()
        producer.begin_transaction()
        lost = broker.faults.add(Fault(api=ApiKey.PRODUCE, drop=True, times=None))
        future = producer.send(TOPIC, b"v", partition=0)
        await_true(lambda: lost.hits, 30)
        producer.abort_transaction(30)
        with pytest.raises(TransactionAbortedError, match="may have the record") as caught:
            future.get(30)
    assert caught.value.persisted is Persisted.MAYBE
    assert "before" not in str(caught.value)


def test_the_outcome_is_unknown_if_the_producer_is_closed_during_the_commit(
    broker: EmbeddedBroker, ready: KafkaProducer
) -> None:
    broker.faults.add(Fault(api=ApiKey.END_TXN, delay=1.0))
    transaction = ready.transaction()
    with suppress(ZeroDivisionError), transaction:
        ready.send(TOPIC, b"v").get(20)
        with pytest.raises(TransactionTimeoutError):
            ready.commit_transaction(timeout=0.1)
        closing = threading.Thread(target=ready.close)
        closing.start()
        time.sleep(0.1)
        raise ZeroDivisionError
    closing.join()
    assert transaction.outcome == "unknown"
    assert stored(broker) == [b"v"]


@pytest.mark.parametrize("closed", [True, False])
def test_the_outcome_of_a_prepared_transaction_is_unknown(
    broker: EmbeddedBroker, producer: KafkaProducer, closed: bool
) -> None:
    transaction = producer.transaction()
    with suppress(ZeroDivisionError), transaction:
        producer.send(TOPIC, b"v").get(20)
        prepared = TwoPhaseCommit(producer).prepare()
        if closed:
            producer.close()
        with KafkaProducer(**options(broker)) as successor:
            TwoPhaseCommit(successor).resume(prepared)
            successor.commit_transaction(30)
        raise ZeroDivisionError
    assert transaction.outcome == "unknown"
    assert stored(broker) == [b"v"]


def test_the_outcome_is_unknown_after_a_signal_during_the_commit(
    broker: EmbeddedBroker, ready: KafkaProducer
) -> None:
    broker.faults.add(Fault(api=ApiKey.END_TXN, delay=1.0))
    transaction = ready.transaction()
    with interruptible(), suppress(Interrupted), transaction:
        ready.send(TOPIC, b"v").get(20)
        signal.setitimer(signal.ITIMER_REAL, 0.1)
    assert transaction.outcome == "unknown"
    ready.commit_transaction(30)


def test_closing_aborts_a_transaction_whose_commit_failed(
    broker: EmbeddedBroker, ready: KafkaProducer
) -> None:
    ready.begin_transaction()
    ready.send(TOPIC, b"good", partition=0).get(20)
    broker.faults.add(Fault(api=ApiKey.PRODUCE, delay=0.5, error=29))
    ready.send(TOPIC, b"refused", partition=1)
    with pytest.raises(TransactionTimeoutError):
        ready.commit_transaction(timeout=0.1)
    ready.close(20)
    assert open_transactions(broker.bootstrap_servers) == []


@pytest.mark.parametrize("prepares", [False, True])
def test_commit_does_not_wait_for_linger_ms(broker: EmbeddedBroker, prepares: bool) -> None:
    """Also the first one, and when the sender thread works because much was sent."""
    patient: dict[str, Any] = {"linger_ms": 100_000, "batch_size": 1000, "batch_max_size": 1000}
    with KafkaProducer(**options(broker), **patient) as producer:
        producer.init_transactions()
        for count in (1, 100, 1):
            producer.begin_transaction()
            producer.send_many(TOPIC, [b"x" * 100] * count)
            if prepares:
                TwoPhaseCommit(producer).prepare(timeout=20)  # raises on timeout
            producer.commit_transaction(timeout=20)
    assert len(stored(broker)) == 102


def test_one_transaction_over_many_partitions() -> None:
    """A thousand with ``KPROD_CAMPAIGN=long``."""
    partitions = range(1000 if os.environ.get("KPROD_CAMPAIGN") == "long" else 100)
    with EmbeddedBroker(topics={"wide": len(partitions)}) as broker:
        with KafkaProducer(**options(broker)) as producer:
            for end in ("lost", "kept"):
                with suppress(ZeroDivisionError), producer.transaction():
                    producer.send_many(
                        "wide", [end.encode()] * len(partitions), partitions=partitions
                    )
                    producer.flush()
                    if end == "lost":
                        raise ZeroDivisionError
        assert not open_transactions(broker.bootstrap_servers)
        found = broker.records("wide", committed=True)
    assert len(found) == len(partitions)
    assert {(record.offset, record.value) for record in found} == {(2, b"kept")}


@pytest.mark.parametrize("fences", [False, True], ids=["before-KAFKA-20785", "KAFKA-20785"])
def test_a_commit_after_a_takeover_is_fenced(fences: bool) -> None:
    config = TransactionConfig(fences_late_commits=fences)
    with (
        EmbeddedBroker(topics={TOPIC: 2}, transaction_config=config) as broker,
        KafkaProducer(**options(broker)) as zombie,
        KafkaProducer(**options(broker)) as successor,
    ):
        zombie.init_transactions()
        zombie.begin_transaction()
        zombie.send(TOPIC, b"late").get(10)
        broker.time_out_transactions()
        successor.init_transactions()
        with pytest.raises(ProducerFencedError) as caught:
            zombie.commit_transaction()
        assert caught.value.next_step is NextStep.START_AGAIN


def test_group_metadata_of_a_confluent_consumer_is_accepted(broker: EmbeddedBroker) -> None:
    """``consumer_group_metadata()`` of a member and of an expelled member."""
    settings: dict[str, Any] = {"bootstrap.servers": broker.bootstrap_servers}
    consumer = Consumer({**settings, "group.id": "group", "log_level": 2})
    producer = ConfluentProducer({**settings, "transactional.id": "tx"})
    try:
        consumer.subscribe([TOPIC])
        while not consumer.assignment():
            consumer.poll(0.05)
        member = consumer.consumer_group_metadata()
        producer.init_transactions(60)
        producer.begin_transaction()
        offsets = [TopicPartition(TOPIC, 0, 7)]
        producer.send_offsets_to_transaction(offsets, member, 60)
        producer.commit_transaction(60)
        native = {**options(broker), "transactional_id": "native"}
        with KafkaProducer(**native) as other, other.transaction() as transaction:
            transaction.send_offsets({(TOPIC, 1): 8}, member)
        assert group_offset(broker.bootstrap_servers, "group", TOPIC, 1) == 8
        asyncio.run(offsets_by_asyncio(native, member))

        consumer.close()
        producer.begin_transaction()
        with pytest.raises(KafkaException) as caught:
            producer.send_offsets_to_transaction([TopicPartition(TOPIC, 0, 9)], member, 60)
        assert caught.value.args[0].txn_requires_abort()
        producer.abort_transaction(60)
    finally:
        producer.close()
        consumer.close()
    assert group_offset(broker.bootstrap_servers, "group", TOPIC, 0) == 7
    assert group_offset(broker.bootstrap_servers, "group", TOPIC, 1) == 9


async def offsets_by_asyncio(native: dict[str, Any], member: Any) -> None:
    async with aio.Producer(**native) as producer, producer.transaction() as transaction:
        await transaction.send_offsets({(TOPIC, 1): 9}, member)


def test_a_repeated_error_code_is_the_cause_of_the_timeout(
    broker: EmbeddedBroker, producer: KafkaProducer
) -> None:
    loading = Fault(api=ApiKey.INIT_PRODUCER_ID, error=14, times=None)
    with broker.faults.active(loading):
        with pytest.raises(TransactionTimeoutError):
            producer.init_transactions(SOON)  # it continues, possibly before the first response
        while loading.hits < 2:
            time.sleep(0.01)
        with pytest.raises(TransactionTimeoutError, match="COORDINATOR_LOAD_IN_PROGRESS") as caught:
            producer.init_transactions(SOON)
    assert isinstance(caught.value.__cause__, BrokerError)
    producer.init_transactions(LONG)


def test_a_past_error_is_not_the_cause(broker: EmbeddedBroker, producer: KafkaProducer) -> None:
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


def test_a_transaction_can_begin_after_init_completed_late(
    broker: EmbeddedBroker, producer: KafkaProducer
) -> None:
    broker.faults.add(Fault(api=ApiKey.INIT_PRODUCER_ID, delay=SOON))
    with pytest.raises(TransactionTimeoutError):
        producer.init_transactions(0)
    producer.await_producer_id(LONG)
    with producer.transaction(LONG):
        producer.send("t", b"v")
    assert len(broker.records("t", committed=True)) == 1


CALLS = ("init", "begin", "send-offsets", "commit", "abort")


def times(producer: KafkaProducer) -> dict[str, float]:
    metrics = producer.metrics()["producer-metrics"]
    return {call: metrics[f"txn-{call}-time-ns-total"] for call in CALLS}


def test_each_transactional_call_has_its_own_time_metric(producer: KafkaProducer) -> None:
    assert set(times(producer).values()) == {0.0}
    producer.init_transactions()
    after_init = times(producer)
    producer.begin_transaction()
    producer.send_offsets_to_transaction({("t", 0): 1}, "group")
    producer.abort_transaction()
    after_abort = times(producer)
    with producer.transaction():
        producer.send("t", b"v")
    after_commit = times(producer)
    assert [call for call in CALLS if after_init[call]] == ["init"]
    assert [call for call in CALLS if not after_abort[call]] == ["commit"]
    assert all(after_commit.values())
    assert after_commit["send-offsets"] == after_abort["send-offsets"]


PARTITIONS = 36
SLOW = 0.02
"""Seconds per Produce request: keeps five in flight."""


def test_offsets_are_sent_while_records_saturate_the_connection() -> None:
    stopped, full = threading.Event(), threading.Event()
    with (
        EmbeddedBroker(topics={"busy": PARTITIONS, "in": 1}) as broker,
        KafkaProducer(**options(broker)) as producer,
    ):

        def send_without_end() -> None:
            for number in itertools.count():
                if stopped.is_set():
                    return
                producer.send("busy", bytes(100), partition=number % PARTITIONS)
                if number % 5 == 0:
                    stopped.wait(0.001)
                if number == 500:
                    full.set()

        producer.init_transactions()
        producer.begin_transaction()
        producer.send("in", b"first").get(20)
        broker.faults.add(Fault(api=ApiKey.PRODUCE, delay=SLOW, times=None))
        sending = threading.Thread(target=send_without_end)
        sending.start()
        try:
            assert full.wait(30)
            producer.send_offsets_to_transaction({("in", 0): 5}, "group", timeout=8)
        finally:
            stopped.set()
            sending.join(30)
        producer.abort_transaction(30)
