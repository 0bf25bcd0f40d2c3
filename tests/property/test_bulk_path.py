"""A bulk call gives the same batches and results as a loop of sends."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kprod import KafkaProducer, KprodError
from kprod.transport.memory import MemoryBackend
from kprod.wire.versions import ApiKey
from tests.property.test_both_paths import Observer, SteadyProducer, payloads
from tests.property.test_both_paths import Sending as Row
from tests.support.scripted_cluster import ScriptedCluster, refuse
from tests.support.tier import examples

TOO_LARGE = 10

pairs = st.lists(st.tuples(st.text(max_size=5), payloads), max_size=3)
headers = (
    st.none()
    | pairs
    | pairs.map(tuple)
    | pairs.map(dict)
    | st.lists(st.tuples(st.text(max_size=5), st.binary(max_size=9).map(bytearray)).map(list))
)


class NoonProducer(SteadyProducer):
    """Its clock stands still: a bulk call reads it less often than a loop of sends."""

    step_ms = 0


def rows(partitions: int) -> st.SearchStrategy[list[Row]]:
    """With several partitions every row has a key or partition, so that nothing is random."""
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
    return [
        producer.send("t", r.value, r.key, r.headers, r.partition, r.timestamp_ms) for r in sent
    ]


def columns(sent: list[Row], kind: Callable[[Any], Any]) -> dict[str, Any]:
    return {
        "values": kind(r.value for r in sent),
        "keys": kind(r.key for r in sent),
        "headers": kind(r.headers for r in sent),
        "partitions": kind(r.partition for r in sent),
        "timestamps_ms": kind(r.timestamp_ms for r in sent),
    }


def by_lists(producer: KafkaProducer, sent: list[Row]) -> list[Any]:
    return [producer.send_many("t", **columns(sent, list))]


def by_iterators(producer: KafkaProducer, sent: list[Row]) -> list[Any]:
    return [producer.send_many("t", **columns(sent, iter))]


def by_pairs(producer: KafkaProducer, sent: list[Row]) -> list[Any]:
    """Two calls with pairs, whose values are buffers that must be copied."""
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
    way: Sending, sent: list[Row], *, partitions: int, splits: int = 0, **options: Any
) -> tuple[list[Any], Any]:
    """The result of every record, and the stored batches."""
    cluster = ScriptedCluster(topics={"t": [1] * partitions})
    broker = cluster.add(1)
    broker.next(ApiKey.PRODUCE, *[refuse(TOO_LARGE)] * splits)
    producer = NoonProducer(
        bootstrap_servers=f"{broker.host}:{broker.port}",
        transport=lambda: MemoryBackend(cluster.listeners),
        max_request_size=3_000,
        linger_ms=60_000,
        **options,
    )
    handles = way(producer, sent)
    producer.close(timeout=20)
    # Compression ratios and splits depend on the sender's timing.
    exact = splits == 0 and options.get("compression_type") is None
    stored = [
        (
            tp,
            [(b.base_sequence, b.crc) for b in batches if exact],
            [_fields(r) for b in batches for r in b.records()],
        )
        for tp, batches in sorted(cluster.log.items())
    ]
    return [result for handle in handles for result in outcomes(handle)], stored


def outcomes(handle: Any) -> list[Any]:
    """The partition and offset of each record, or the type of its error."""
    results = (
        [handle.value or handle.exception] if hasattr(handle, "add_callback") else list(handle)
    )
    return [
        type(one) if isinstance(one, KprodError) else (one.topic_partition, one.offset)
        for one in results
    ]


def _fields(record: Any) -> tuple[Any, ...]:
    return record.timestamp, record.key, record.value, tuple(record.headers)


@settings(max_examples=examples(60))
@given(
    given=st.sampled_from([1, 3]).flatmap(lambda count: st.tuples(st.just(count), rows(count))),
    way=st.sampled_from([by_lists, by_iterators, by_pairs]),
    codec=st.sampled_from([None, None, "gzip", "snappy", "lz4", "zstd"]),
    batch_size=st.integers(80, 1000),
    splits=st.sampled_from([0, 0, 1, 2, 4]),
    watched=st.booleans(),
)
def test_a_bulk_call_gives_the_batches_and_results_of_a_loop(
    given: tuple[int, list[Row]],
    way: Sending,
    codec: str | None,
    batch_size: int,
    splits: int,
    watched: bool,
) -> None:
    """Also with split batches, and with interceptors."""
    partitions, sent = given
    options: dict[str, Any] = {
        "partitions": partitions,
        "compression_type": codec,
        "splits": splits,
        "batch_size": 1000 if splits else batch_size,
    }
    found = run(way, sent, interceptors=[Observer()] if watched else [], **options)
    assert found == run(by_loop, sent, **options)


@pytest.mark.parametrize("partitions", [1, 300, pytest.param(70_000, marks=pytest.mark.full)])
def test_any_number_of_partitions_is_supported(partitions: int) -> None:
    sent = [
        Row(b"%d" % n, None, (n * 7919) % partitions, 1, None) for n in range(min(partitions, 600))
    ]
    results, stored = run(by_lists, sent, partitions=partitions)
    assert [tp.partition for tp, _ in results] == [row.partition for row in sent]
    assert sum(len(records) for _, _, records in stored) == len(sent)
