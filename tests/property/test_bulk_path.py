"""A bulk call makes the batches that a loop of sends makes, and tells the same of every record."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kprod import KafkaProducer, KprodError
from kprod.transport.memory import MemoryBackend
from kprod.wire.versions import ApiKey
from kprod_ext import RecordClock
from tests.property.test_both_paths import NOON, Observer
from tests.support.scripted_cluster import ScriptedCluster, refuse
from tests.support.tier import examples

TOO_LARGE = 10


@dataclass(frozen=True)
class Row:
    """The arguments of one send."""

    value: bytes | None
    key: bytes | None
    partition: int | None
    timestamp_ms: int | None
    headers: Any


payloads = st.none() | st.binary(max_size=120)
pairs = st.lists(st.tuples(st.text(max_size=5), payloads), max_size=3)
headers = (
    st.none()
    | pairs
    | pairs.map(tuple)
    | pairs.map(dict)
    | st.lists(st.tuples(st.text(max_size=5), st.binary(max_size=9).map(bytearray)).map(list))
)


class SteadyProducer(KafkaProducer):
    """For its clock it is always noon: a bulk call asks less often than a loop of sends."""

    def _record_clock(self) -> RecordClock:
        return RecordClock(lambda: NOON)


def rows(partitions: int) -> st.SearchStrategy[list[Row]]:
    """Keys or partitions everywhere if there is a choice: chance must have no part in it."""
    row = st.builds(
        Row,
        value=payloads,
        key=st.binary(max_size=20) if partitions > 1 else payloads,
        partition=st.none() | st.integers(min_value=0, max_value=partitions - 1),
        timestamp_ms=st.none() | st.integers(min_value=0, max_value=2**40) | st.just(2**63 - 1),
        headers=headers,
    )
    return st.lists(row, min_size=1, max_size=80)


Sending = Callable[[KafkaProducer, list[Row]], list[Any]]


def by_loop(producer: KafkaProducer, sent: list[Row]) -> list[Any]:
    """The futures of a loop of sends."""
    return [
        producer.send("t", r.value, r.key, r.headers, r.partition, r.timestamp_ms) for r in sent
    ]


def columns(sent: list[Row], kind: Callable[[Any], Any]) -> dict[str, Any]:
    """The arguments of ``send_many``, each column made by ``kind``."""
    return {
        "values": kind(r.value for r in sent),
        "keys": kind(r.key for r in sent),
        "headers": kind(r.headers for r in sent),
        "partitions": kind(r.partition for r in sent),
        "timestamps_ms": kind(r.timestamp_ms for r in sent),
    }


def by_lists(producer: KafkaProducer, sent: list[Row]) -> list[Any]:
    """One call with lists."""
    return [producer.send_many("t", **columns(sent, list))]


def by_iterators(producer: KafkaProducer, sent: list[Row]) -> list[Any]:
    """One call with iterators."""
    return [producer.send_many("t", **columns(sent, iter))]


def by_pairs(producer: KafkaProducer, sent: list[Row]) -> list[Any]:
    """A call with pairs, of which every buffer is one that must be copied, and a call after it."""
    arguments = columns(sent, tuple)
    keys, values = arguments.pop("keys"), arguments.pop("values")
    pairs = [
        (key, value if value is None else bytearray(value))
        for key, value in zip(keys, values, strict=True)
    ]
    middle = len(sent) // 2
    return [
        producer.send_many("t", pairs[part], **{n: c[part] for n, c in arguments.items()})
        for part in (slice(0, middle), slice(middle, None))
    ]


def run(
    way: Sending,
    sent: list[Row],
    *,
    partitions: int,
    splits: int = 0,
    **options: Any,
) -> tuple[list[Any], Any]:
    """What every record came to, and what the cluster stored."""
    cluster = ScriptedCluster(topics={"t": [1] * partitions})
    broker = cluster.add(1)
    broker.next(ApiKey.PRODUCE, *[refuse(TOO_LARGE)] * splits)
    producer = SteadyProducer(
        bootstrap_servers=f"{broker.host}:{broker.port}",
        transport=lambda: MemoryBackend(cluster.listeners),
        max_request_size=3_000,
        linger_ms=60_000,
        **options,
    )
    handles = way(producer, sent)
    producer.close(timeout=20)
    # What was learned of the codec, or cut in two, depends on when the sender looked.
    exact = splits == 0 and options.get("compression_type") is None
    stored = [
        (
            tp,
            [(b.base_sequence, b.crc) for b in batches if exact],
            [_fields(r) for b in batches for r in b.records()],
        )
        for tp, batches in sorted(cluster.log.items())
    ]
    return [told for handle in handles for told in outcomes(handle)], stored


def outcomes(handle: Any) -> list[Any]:
    """Where each record is, or the type of its error."""
    told = [handle.value or handle.exception] if hasattr(handle, "add_callback") else list(handle)
    return [
        type(one) if isinstance(one, KprodError) else (one.topic_partition, one.offset)
        for one in told
    ]


def _fields(record: Any) -> tuple[Any, ...]:
    return record.timestamp, record.key, record.value, tuple(record.headers)


ways = st.sampled_from([by_lists, by_iterators, by_pairs])


@settings(max_examples=examples(30))
@given(
    rows(3), ways, st.sampled_from([None, "gzip", "snappy", "lz4", "zstd"]), st.integers(80, 1000)
)
def test_the_batches_are_those_of_a_loop(
    sent: list[Row], way: Sending, codec: str | None, batch_size: int
) -> None:
    options: dict[str, Any] = {"partitions": 3, "compression_type": codec, "batch_size": batch_size}
    assert run(way, sent, **options) == run(by_loop, sent, **options)


@settings(max_examples=examples(15))
@given(rows(1), ways, st.integers(80, 1000))
def test_records_without_keys_make_the_same_batches(
    sent: list[Row], way: Sending, batch_size: int
) -> None:
    options: dict[str, Any] = {"partitions": 1, "batch_size": batch_size}
    assert run(way, sent, **options) == run(by_loop, sent, **options)


@settings(max_examples=examples(15))
@given(rows(3), ways, st.integers(1, 4))
def test_outcomes_are_found_in_batches_that_were_split(
    sent: list[Row], way: Sending, splits: int
) -> None:
    options: dict[str, Any] = {"partitions": 3, "batch_size": 1000, "splits": splits}
    assert run(way, sent, **options) == run(by_loop, sent, **options)


@settings(max_examples=examples(10))
@given(rows(3), ways)
def test_a_producer_with_interceptors_makes_the_same(sent: list[Row], way: Sending) -> None:
    options: dict[str, Any] = {"partitions": 3, "batch_size": 300}
    watched = run(way, sent, interceptors=[Observer()], **options)
    assert watched == run(by_loop, sent, **options)


@pytest.mark.parametrize("partitions", [1, 300, pytest.param(70_000, marks=pytest.mark.full)])
def test_any_number_of_partitions_can_be_told_apart(partitions: int) -> None:
    sent = [
        Row(b"%d" % n, None, (n * 7919) % partitions, 1, None) for n in range(min(partitions, 600))
    ]
    told, stored = run(by_lists, sent, partitions=partitions)
    assert [tp.partition for tp, _ in told] == [row.partition for row in sent]
    assert sum(len(records) for _, _, records in stored) == len(sent)
