"""What no request can have is refused where it is given: the sender could not write it."""

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
PLACE = ("t", 0)
LONE = "\udcff"  # half of a pair, as in a file's name that is no UTF-8
MUCH = "g" * 32_768


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


def goes_on(producer: KafkaProducer) -> None:
    """Its sender has not broken off."""
    producer.send_offsets_to_transaction({PLACE: Offset(1, None, None)}, "g", LONG)
    producer.commit_transaction(LONG)


@pytest.mark.parametrize(
    ("offsets", "group", "error"),
    [
        ({("t", 2**31): 1}, "g", PartitionError),
        ({("t", -1): 1}, "g", PartitionError),
        ({(LONE, 0): 1}, "g", InvalidTopicError),
        ({PLACE: Offset(metadata=LONE)}, "g", InvalidRecordError),
        ({PLACE: Offset(metadata=MUCH)}, "g", InvalidRecordError),
        ({PLACE: Offset(metadata=b"m")}, "g", RecordTypeError),
        ({PLACE: Offset(leader_epoch=2**31)}, "g", InvalidRecordError),
        ({PLACE: Offset(leader_epoch="e")}, "g", RecordTypeError),
        ({PLACE: 1}, LONE, InvalidRecordError),
        ({PLACE: 1}, MUCH, InvalidRecordError),
        ({PLACE: 1}, GroupMetadata("g", 2**31), InvalidRecordError),
        ({PLACE: 1}, GroupMetadata("g", 1, LONE), InvalidRecordError),
        ({PLACE: 1}, GroupMetadata("g", 1, "m", 7), RecordTypeError),  # type: ignore[arg-type]
    ],
)
def test_offsets_that_cannot_be_written(
    producer: KafkaProducer, offsets: Any, group: Any, error: type[KprodError]
) -> None:
    producer.begin_transaction()
    with pytest.raises(error):
        producer.send_offsets_to_transaction(offsets, group, LONG)
    goes_on(producer)


@pytest.mark.parametrize(
    ("group", "place", "error"),
    [
        (LONE, PLACE, InvalidRecordError),
        ("", PLACE, InvalidRecordError),
        ("g", (LONE, 0), InvalidTopicError),
        ("g", ("t", 2**31), PartitionError),
    ],
)
def test_questions_that_cannot_be_written(
    producer: KafkaProducer, group: str, place: tuple[str, int], error: type[KprodError]
) -> None:
    with pytest.raises(error):
        TwoPhaseCommit(producer).committed_offsets(group, [TopicPartition(*place)], LONG)
    producer.begin_transaction()
    goes_on(producer)


def test_time_limits_that_cannot_be(producer: KafkaProducer) -> None:
    calls: list[Callable[[Any], object]] = [
        producer.await_producer_id,
        lambda timeout: TwoPhaseCommit(producer).committed_offsets("g", [], timeout),
    ]
    wrong: list[tuple[Any, type[KprodError]]] = [
        *((seconds, InvalidRecordError) for seconds in (-1, float("nan"), 10**18)),
        ("1", RecordTypeError),
    ]
    for call in calls:
        for timeout, error in wrong:
            with pytest.raises(error, match="timeout"):
                call(timeout)


def test_a_call_without_a_transactional_id_is_refused_by_its_own_name() -> None:
    with KafkaProducer(bootstrap_servers="localhost:1") as producer:
        two_phase = TwoPhaseCommit(producer)
        with pytest.raises(IllegalStateError, match=r"^resume\(\) needs"):
            two_phase.resume(PreparedTransaction("x", 1, 0))
        with pytest.raises(IllegalStateError, match=r"^committed_offsets\(\) needs"):
            two_phase.committed_offsets("g", [])
