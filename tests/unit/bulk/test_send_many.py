"""``send_many``: accepted and refused arguments, and calls that end early."""

from __future__ import annotations

import pickle
import threading
from collections.abc import Callable, Iterable, Iterator
from itertools import cycle
from typing import Any, NamedTuple

import pytest

from kprod import TopicPartition
from kprod.errors import (
    BufferFullError,
    InvalidRecordError,
    InvalidTopicError,
    KprodError,
    PartitionError,
    ProducerClosedError,
    RecordTooLargeError,
    RecordTypeError,
    SerializationError,
)
from kprod.wire.versions import ApiKey
from tests.support.pool_waiter import wait_until
from tests.support.scripted_cluster import ScriptedCluster, silence
from tests.support.scripted_producer import cluster_of, producer_before


def stored(cluster: ScriptedCluster) -> list[bytes | None]:
    return [value for p in range(8) for value in cluster.values("t", p)]


GOOD = [b"a", b"b", b"c"]


@pytest.mark.parametrize(
    ("error", "message", "arguments"),
    [
        *((RecordTypeError, "values: expected a list", {"values": v}) for v in (b"a", {"a": 1}, 7)),
        (RecordTypeError, "keys: expected a list", {"keys": b"abc"}),
        (InvalidRecordError, "keys: expected one for each of 3 records, got 2", {"keys": [1, 2]}),
        (InvalidRecordError, "keys: expected one .* 3 records, got 4", {"keys": [b"k"] * 4}),
        (SerializationError, "record 0: value for topic", {"values": ((b"k", b"v", b"w"),)}),
        (RecordTypeError, "record 1: partition", {"partitions": [0, "1", 0]}),
        (PartitionError, "partition: expected", {"partitions": -1}),
        (InvalidRecordError, "timestamp_ms: expected", {"timestamps_ms": -1}),
        (RecordTooLargeError, "record 0: a record", {"headers": [("h", b"x" * 2_000_000)]}),
        (InvalidTopicError, "topic: expected", {"topic": "no such name"}),
    ],
)
def test_a_bad_argument_is_refused_before_anything_is_queued(
    error: type[KprodError], message: str, arguments: dict[str, Any]
) -> None:
    cluster = cluster_of()
    given = {"topic": "t", "values": GOOD, **arguments}
    with producer_before(cluster) as producer, pytest.raises(error, match=message):
        producer.send_many(**given)
    assert stored(cluster) == []


@pytest.mark.parametrize("serializer", [None, bytes])
def test_an_iterator_may_reuse_one_buffer(serializer: Any) -> None:
    """Each record has the content of the buffer at its turn, as with a loop of ``send``."""

    def filled(prefix: bytes, view: bool) -> Iterator[Any]:
        buffer = bytearray(4)
        for number in range(1000):
            buffer[:] = prefix + b"%03d" % number
            yield memoryview(buffer) if view else buffer

    def pairs() -> Iterator[Any]:
        return zip(filled(b"k", False), filled(b"v", False), strict=True)

    values = [b"v%03d" % number for number in range(1000)]
    keys = [b"k%03d" % number for number in range(1000)]
    for arguments in (
        {"values": filled(b"v", False), "keys": filled(b"k", False)},
        {"values": pairs()},
        {"values": filled(b"v", True), "keys": filled(b"k", True)},
    ):
        cluster = cluster_of()
        options = {} if serializer is None else {"value_serializer": serializer}
        with producer_before(cluster, **options) as producer:
            producer.send_many("t", **arguments).get(10)
        batches = cluster.log[TopicPartition("t", 0)]
        records = [record for batch in batches for record in batch.records()]
        assert [(r.key, r.value) for r in records] == list(zip(keys, values, strict=True))


def test_subclasses_of_list_and_tuple_are_accepted() -> None:
    class Rows(list[bytes]):
        pass

    class Pair(NamedTuple):
        first: bytes
        second: bytes

    cluster = cluster_of()
    with producer_before(cluster) as producer:
        for values in (Rows([b"a", b"b"]), Pair(b"c", b"d")):
            producer.send_many("t", values, keys=Rows([b"k", b"l"])).get(10)
    assert stored(cluster) == [b"a", b"b", b"c", b"d"]


def test_columns_for_an_iterator_may_be_infinite() -> None:
    cluster = cluster_of(2)
    with producer_before(cluster) as producer:
        handle = producer.send_many("t", (b"%d" % n for n in range(2000)), partitions=cycle([0, 1]))
        report = handle.get(timeout=20)
    assert {tp.partition: r.records for tp, r in report.offsets.items()} == {0: 1000, 1: 1000}
    assert cluster.values("t", 1) == [b"%d" % n for n in range(1, 2000, 2)]


@pytest.mark.parametrize("column", ["keys", "headers", "partitions", "timestamps_ms"])
def test_an_infinite_column_for_a_list_is_refused(column: str) -> None:
    taken = 0

    def endless() -> Iterator[None]:
        nonlocal taken
        while taken < 100_000:
            taken += 1
            yield None

    cluster = cluster_of()
    arguments: Any = {column: endless()}
    with (
        producer_before(cluster) as producer,
        pytest.raises(InvalidRecordError, match=f"{column}: .* each of 3 records, got more"),
    ):
        producer.send_many("t", GOOD, **arguments)
    assert (taken, stored(cluster)) == (4, [])


def counting(to: int, then: BaseException) -> Iterator[bytes]:
    for number in range(to):
        yield b"%d" % number
    raise then


@pytest.mark.parametrize("how_many", [0, 1, 511, 512, 1500])
@pytest.mark.parametrize("options", [{}, {"value_serializer": bytes}])
def test_records_of_a_failing_iterator_are_sent(how_many: int, options: dict[str, Any]) -> None:
    cluster = cluster_of()
    with producer_before(cluster, **options) as producer:
        with pytest.raises(LookupError) as raised:
            producer.send_many("t", counting(how_many, LookupError("gone")))
        assert raised.value.accepted == how_many  # type: ignore[attr-defined]
        delivery = raised.value.delivery  # type: ignore[attr-defined]
        assert delivery.get(timeout=20).records == how_many
    assert stored(cluster) == [b"%d" % number for number in range(how_many)]


ROWS = [b"0", b"1", b"2"]
BAD_ROWS: list[tuple[type[Exception], str, dict[str, Any]]] = [
    (SerializationError, "value for topic 't'", {"values": [b"0", b"1", "text"]}),
    (SerializationError, "key for topic 't'", {"values": [(b"k", b"0"), b"1", ("k", b"2")]}),
    (RecordTooLargeError, "a record for topic 't'", {"values": [b"0", b"1", bytes(2_000_000)]}),
    (PartitionError, "partition", {"values": ROWS, "partitions": [0, 0, -1]}),
    (InvalidRecordError, "timestamp", {"values": ROWS, "timestamps_ms": [1, 2, -3]}),
    (RecordTypeError, "headers", {"values": ROWS, "headers": [[], [], 5]}),
]


@pytest.mark.parametrize(
    "options", [{}, {"key_serializer": lambda key: key}], ids=["compiled", "plain"]
)
@pytest.mark.parametrize(("error", "message", "columns"), BAD_ROWS)
@pytest.mark.parametrize("kind", [list, iter], ids=["list", "iterator"])
def test_the_error_for_an_invalid_record_has_its_number(
    kind: Any,
    error: type[Exception],
    message: str,
    columns: dict[str, Any],
    options: dict[str, Any],
) -> None:
    """For lists, which are checked as a whole, before anything is queued."""
    given = {name: kind(column) for name, column in columns.items()}
    cluster = cluster_of()
    with producer_before(cluster, **options) as producer:
        with pytest.raises(error, match=f"^record 2: {message}") as raised:
            producer.send_many("t", **given)
        assert pickle.loads(pickle.dumps(raised.value)).args == raised.value.args
    accepted = getattr(raised.value, "accepted", 0)
    if kind is iter or not options:
        assert accepted == (2 if kind is iter else 0)
    assert stored(cluster) == [b"0", b"1"][:accepted]


@pytest.mark.parametrize(
    ("error", "bad", "partitions"),
    [
        (PartitionError, [b"0", b"1", "text"], [0, -1, 0]),
        (SerializationError, [b"0", "text", b"2"], [0, 0, -1]),
        (RecordTooLargeError, [b"0", bytes(2_000_000), "text"], [0, 0, -1]),
    ],
)
def test_the_error_is_that_of_the_first_invalid_record(
    error: type[Exception], bad: list[Any], partitions: list[int]
) -> None:
    with producer_before(cluster_of()) as producer, pytest.raises(error, match=r"^record 1: "):
        producer.send_many("t", bad, partitions=partitions)


def test_the_exception_of_a_serializer_is_the_cause_of_the_error() -> None:
    def text(value: Any) -> bytes:
        return memoryview(value).tobytes()

    with producer_before(cluster_of(), value_serializer=text) as producer:
        with pytest.raises(SerializationError, match=r"^record 1: .* failed on int") as raised:
            producer.send_many("t", [b"0", 1])
        assert type(raised.value.__cause__) is TypeError
        assert raised.value.accepted == 1  # type: ignore[attr-defined]


def test_a_full_buffer_ends_the_call_after_max_block() -> None:
    cluster = cluster_of()
    broker = cluster.brokers[1]
    values = [b"%04d" % n * 25 for n in range(1000)]
    with producer_before(
        cluster, buffer_memory=20_000, batch_size=2_000, max_request_size=2_000, max_block_ms=100
    ) as producer:
        producer.send("t", b"first").get(timeout=20)
        broker.next(ApiKey.PRODUCE, silence)
        with pytest.raises(BufferFullError) as raised:
            producer.send_many("t", values)
        accepted: int = raised.value.accepted  # type: ignore[attr-defined]
        delivery = raised.value.delivery  # type: ignore[attr-defined]
        assert 100 < accepted < 250
        assert len(delivery) == accepted
        assert delivery[0] is None
        producer.close(timeout=0)
        assert delivery.is_done
        assert delivery.failed_indices() == list(range(accepted))
        assert all(isinstance(error, ProducerClosedError) for error in delivery.exceptions)


def test_closing_the_producer_ends_the_call() -> None:
    cluster = cluster_of()
    producer = producer_before(cluster)

    def values() -> Iterator[bytes]:
        for number in range(2000):
            if number == 700:
                producer.close(timeout=20)
            yield b"%d" % number

    with pytest.raises(ProducerClosedError) as raised:
        producer.send_many("t", values())
    assert raised.value.accepted == 512  # type: ignore[attr-defined]
    assert stored(cluster) == [b"%d" % number for number in range(512)]


def test_lingering_records_are_sent_while_the_iterator_blocks() -> None:
    cluster = cluster_of()

    def trickle() -> Iterator[bytes]:
        yield from [b"first"] * 1024  # two chunks
        wait_until(lambda: len(stored(cluster)) >= 1024)
        yield b"last"

    with producer_before(cluster, linger_ms=20, batch_size=1_000_000) as producer:
        producer.send("t", b"warm").get(20)
        threading.Event().wait(0.1)  # the sender is asleep
        assert producer.send_many("t", trickle()).get(20).records == 1025


def test_a_sticky_partition_that_no_longer_exists_is_abandoned() -> None:
    """The topic was recreated with fewer partitions."""
    cluster = cluster_of(8)
    for _ in range(50):
        with producer_before(cluster, metadata_max_age_ms=20, max_block_ms=5000) as producer:
            producer.send_many("t", [b"before"]).get(10)
            if not any(cluster.values("t", partition) for partition in range(1, 8)):
                continue
            cluster.topics["t"] = [1]
            while producer.partitions_for("t") != {0}:
                producer.send("t", b"time passes", partition=0).get(10)
            producer.send_many("t", [b"after", b"later"]).get(10)
            assert cluster.values("t", 0)[-2:] == [b"after", b"later"]
            return
    raise AssertionError("fifty producers drew partition 0 of eight")


@pytest.mark.parametrize("many", [list, iter])
def test_an_added_partition_is_written_to(many: Callable[[list[Any]], Iterable[Any]]) -> None:
    cluster = cluster_of(1)
    with producer_before(cluster) as producer:
        producer.send("t", b"before", partition=0).get(10)
        cluster.topics["t"] = [1] * 4
        producer.send_many("t", many([b"0", b"3"]), partitions=many([0, 3])).get(10)
    assert cluster.values("t", 0) == [b"before", b"0"]
    assert cluster.values("t", 3) == [b"3"]


def test_a_topic_without_partitions_is_refused() -> None:
    cluster = cluster_of(0)
    cluster.errors["t"] = 0  # the topic exists
    with producer_before(cluster) as producer:
        with pytest.raises(PartitionError, match="topic 't' has no partitions"):
            producer.send_many("t", GOOD)
        with pytest.raises(PartitionError, match="topic 't' has no partitions"):
            producer.send("t", b"", partition=0)
