"""Prepared transactions, and committed offsets of groups while transactions are open."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Iterator
from typing import Any, NamedTuple

import pytest

from kprod import IllegalStateError, KafkaProducer
from kprod.admin import OpenTransaction, open_transactions
from kprod.broker import EmbeddedBroker
from kprod.errors import KprodTimeoutError, TransactionError
from kprod.transactional.rename import rename
from kprod.transactional.two_phase_commit import PreparedTransaction, TwoPhaseCommit
from kprod.types import TopicPartition
from tests.integration.conftest import SharedKafka
from tests.support.apache_kafka.jars import NEWEST, OLDER_TOO
from tests.support.committed_records import committed
from tests.support.programs import run_python
from tests.support.tier import one_of
from tests.support.topic_admin import TopicAdmin

PARTITIONS = 2
MAX_BLOCK_MS = 60_000
PREPARES = """
import sys, os
from kprod import KafkaProducer
from kprod.transactional.two_phase_commit import TwoPhaseCommit
bootstrap, name, topic = sys.argv[1:]
producer = KafkaProducer(bootstrap_servers=bootstrap, transactional_id=name, max_block_ms=60_000)
producer.init_transactions()
producer.begin_transaction()
for number in range(20):
    producer.send(topic, b"%02d" % number, partition=number % 2)
print(TwoPhaseCommit(producer).prepare(), flush=True)
os._exit(0)  # as if killed
"""
numbers = itertools.count(1)


@pytest.fixture(scope="module", params=[*one_of(NEWEST, "embedded"), OLDER_TOO])
def bootstrap_servers(request: pytest.FixtureRequest, shared_kafka: SharedKafka) -> Iterator[str]:
    if request.param == "embedded":
        with EmbeddedBroker() as embedded:
            yield embedded.bootstrap_servers
    else:
        yield shared_kafka(request.param).bootstrap_servers


@pytest.fixture
def topic(bootstrap_servers: str) -> str:
    name = f"prepared-{next(numbers)}"
    TopicAdmin(bootstrap_servers).create(name, PARTITIONS)
    return name


def make(bootstrap_servers: str, name: str) -> KafkaProducer:
    return KafkaProducer(
        bootstrap_servers=bootstrap_servers, transactional_id=name, max_block_ms=MAX_BLOCK_MS
    )


def prepare_elsewhere(bootstrap_servers: str, topic: str) -> PreparedTransaction:
    """Prepare in a process that has ended on return; the transactional id is the topic name."""
    ran = run_python("-c", PREPARES, bootstrap_servers, topic, topic)
    return PreparedTransaction.parse(ran.stdout.strip())


def find_open(bootstrap_servers: str, name: str) -> list[OpenTransaction]:
    return [each for each in open_transactions(bootstrap_servers) if each.transactional_id == name]


@pytest.mark.parametrize("end", ["commit", "abort"])
def test_another_process_can_end_a_prepared_transaction(
    bootstrap_servers: str, topic: str, end: str
) -> None:
    """The cluster also lists the prepared transaction."""
    prepared = prepare_elsewhere(bootstrap_servers, topic)
    (found,) = find_open(bootstrap_servers, topic)
    assert found[:4] == (topic, prepared.producer_id, prepared.epoch, "Ongoing")
    assert found.partitions == (TopicPartition(topic, 0), TopicPartition(topic, 1))
    assert found.started_ms > 0
    assert found.timeout_ms == 60_000

    with make(bootstrap_servers, topic) as producer:
        TwoPhaseCommit(producer).resume(prepared)
        with pytest.raises(IllegalStateError):
            producer.send(topic, b"too late")
        if end == "commit":
            producer.commit_transaction()
        else:
            producer.abort_transaction()
        with producer.transaction():
            producer.send(topic, b"next", partition=0)
    expected = [b"%02d" % number for number in range(20)] if end == "commit" else []
    assert sorted(committed(bootstrap_servers, topic, PARTITIONS)) == [*expected, b"next"]
    assert not find_open(bootstrap_servers, topic)


def test_one_producer_can_use_several_transactional_ids(bootstrap_servers: str, topic: str) -> None:
    """A transaction prepared under one id stays open while it uses others."""
    with make(bootstrap_servers, f"{topic}-0") as producer:
        for number in range(4):
            rename(producer, f"{topic}-{number % 3}")  # the last one is reused
            with producer.transaction():
                for _ in range(5):
                    producer.send(topic, b"%d" % number, partition=0)
        rename(producer, f"{topic}-prepared")
        producer.init_transactions()
        producer.begin_transaction()
        producer.send(topic, b"prepared", partition=1)
        prepared = TwoPhaseCommit(producer).prepare()
        rename(producer, f"{topic}-0")
        with producer.transaction():
            producer.send(topic, b"last", partition=0)
        (found,) = find_open(bootstrap_servers, f"{topic}-prepared")
        assert (found.producer_id, found.epoch) == prepared[1:3]
    with make(bootstrap_servers, f"{topic}-prepared") as other:
        TwoPhaseCommit(other).resume(prepared)
        other.commit_transaction()
    written = [b"%d" % number for number in range(4) for _ in range(5)]
    expected = sorted([*written, b"last", b"prepared"])
    assert sorted(committed(bootstrap_servers, topic, PARTITIONS)) == expected


def test_a_transaction_aborted_by_a_new_producer_cannot_be_resumed(
    bootstrap_servers: str, topic: str
) -> None:
    prepared = prepare_elsewhere(bootstrap_servers, topic)
    with make(bootstrap_servers, topic) as successor, make(bootstrap_servers, topic) as late:
        successor.init_transactions()
        TwoPhaseCommit(late).resume(prepared)
        with pytest.raises(TransactionError):
            late.commit_transaction()
    assert committed(bootstrap_servers, topic, PARTITIONS) == []


class OffsetWithMetadata(NamedTuple):
    """An offset with metadata."""

    offset: int
    metadata: str


def test_committed_offsets_waits_for_transactions(bootstrap_servers: str, topic: str) -> None:
    partition = TopicPartition(topic, 0)
    with make(bootstrap_servers, topic) as writer, make(bootstrap_servers, "reader") as reader:

        def found(**options: Any) -> Any:
            offsets = TwoPhaseCommit(reader).committed_offsets(topic, [partition], **options)
            return offsets[partition]

        assert found().offset == -1
        metadata = "{" + "n" * 3_000 + "}"
        with writer.transaction():
            writer.send_offsets_to_transaction({partition: OffsetWithMetadata(5, metadata)}, topic)
        assert (found().offset, found().metadata) == (5, metadata.encode())
        answers: list[int] = []
        started = threading.Event()

        def read_offset() -> None:
            started.set()
            answers.append(found().offset)

        with writer.transaction():
            writer.send_offsets_to_transaction({partition: OffsetWithMetadata(6, "")}, topic)
            with pytest.raises(KprodTimeoutError, match=f"'{topic}'"):
                found(timeout=0.3)
            assert found(wait=False).offset == -1
            waiting = threading.Thread(target=read_offset)
            waiting.start()
            started.wait()
        waiting.join()
        assert answers == [6]


def test_a_fenced_producer_can_read_committed_offsets(bootstrap_servers: str, topic: str) -> None:
    partition = TopicPartition(topic, 0)
    with make(bootstrap_servers, topic) as fenced, make(bootstrap_servers, topic) as successor:
        fenced.init_transactions()
        with successor.transaction():
            successor.send_offsets_to_transaction({partition: 9}, topic)
        fenced.begin_transaction()
        fenced.send(topic, b"too late")
        with pytest.raises(TransactionError):
            fenced.commit_transaction()
        assert TwoPhaseCommit(fenced).committed_offsets(topic, [partition])[partition].offset == 9
