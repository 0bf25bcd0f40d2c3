"""Transactional calls refuse arguments that a request cannot encode."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import pytest

from kprod import KafkaProducer
from kprod.broker import EmbeddedBroker
from kprod.errors import (
    IllegalStateError,
    InvalidRecordError,
    InvalidTopicError,
    KprodError,
    PartitionError,
    RecordTypeError,
)
from kprod.transactional.group_offsets import GroupMetadata
from kprod.transactional.two_phase_commit import PreparedTransaction, TwoPhaseCommit
from kprod.types import TopicPartition

LONG = 30.0
PARTITION = ("t", 0)
SURROGATE = "\udcff"  # a lone surrogate, as in a file name that is not UTF-8
TOO_LONG = "g" * 32_768


class Offset(NamedTuple):
    offset: int = 1
    metadata: Any = ""
    leader_epoch: Any = -1


@pytest.fixture(scope="module")
def producer() -> Iterator[KafkaProducer]:
    with (
        EmbeddedBroker(topics={"t": 1}) as broker,
        KafkaProducer(bootstrap_servers=broker.bootstrap_servers, transactional_id="x") as made,
    ):
        made.init_transactions()
        yield made


def assert_still_works(producer: KafkaProducer) -> None:
    """The sender still works."""
    producer.send_offsets_to_transaction({PARTITION: Offset(1, None, None)}, "g", LONG)
    producer.commit_transaction(LONG)


@pytest.mark.parametrize(
    ("offsets", "group", "error"),
    [
        ({("t", 2**31): 1}, "g", PartitionError),
        ({("t", -1): 1}, "g", PartitionError),
        ({(SURROGATE, 0): 1}, "g", InvalidTopicError),
        ({PARTITION: Offset(metadata=SURROGATE)}, "g", InvalidRecordError),
        ({PARTITION: Offset(metadata=TOO_LONG)}, "g", InvalidRecordError),
        ({PARTITION: Offset(metadata=b"m")}, "g", RecordTypeError),
        ({PARTITION: Offset(leader_epoch=2**31)}, "g", InvalidRecordError),
        ({PARTITION: Offset(leader_epoch="e")}, "g", RecordTypeError),
        ({PARTITION: 1}, SURROGATE, InvalidRecordError),
        ({PARTITION: 1}, TOO_LONG, InvalidRecordError),
        ({PARTITION: 1}, GroupMetadata("g", 2**31), InvalidRecordError),
        ({PARTITION: 1}, GroupMetadata("g", 1, SURROGATE), InvalidRecordError),
        ({PARTITION: 1}, GroupMetadata("g", 1, "m", 7), RecordTypeError),  # type: ignore[arg-type]
    ],
)
def test_invalid_offsets_are_refused(
    producer: KafkaProducer, offsets: Any, group: Any, error: type[KprodError]
) -> None:
    producer.begin_transaction()
    with pytest.raises(error):
        producer.send_offsets_to_transaction(offsets, group, LONG)
    assert_still_works(producer)


@pytest.mark.parametrize(
    ("group", "partition", "error"),
    [
        (SURROGATE, PARTITION, InvalidRecordError),
        ("", PARTITION, InvalidRecordError),
        ("g", (SURROGATE, 0), InvalidTopicError),
        ("g", ("t", 2**31), PartitionError),
    ],
)
def test_invalid_arguments_of_committed_offsets_are_refused(
    producer: KafkaProducer, group: str, partition: tuple[str, int], error: type[KprodError]
) -> None:
    with pytest.raises(error):
        TwoPhaseCommit(producer).committed_offsets(group, [TopicPartition(*partition)], LONG)
    producer.begin_transaction()
    assert_still_works(producer)


def test_invalid_timeouts_are_refused(producer: KafkaProducer) -> None:
    calls: list[Callable[[Any], object]] = [
        producer.await_producer_id,
        lambda timeout: TwoPhaseCommit(producer).committed_offsets("g", [], timeout),
    ]
    invalid: list[tuple[Any, type[KprodError]]] = [
        *((seconds, InvalidRecordError) for seconds in (-1, float("nan"), 10**18)),
        ("1", RecordTypeError),
    ]
    for call in calls:
        for timeout, error in invalid:
            with pytest.raises(error, match="timeout"):
                call(timeout)


def test_the_error_for_a_missing_transactional_id_names_the_call() -> None:
    with KafkaProducer(bootstrap_servers="localhost:1") as producer:
        two_phase = TwoPhaseCommit(producer)
        with pytest.raises(IllegalStateError, match=r"^resume\(\) needs"):
            two_phase.resume(PreparedTransaction("x", 1, 0))
        with pytest.raises(IllegalStateError, match=r"^committed_offsets\(\) needs"):
            two_phase.committed_offsets("g", [])
