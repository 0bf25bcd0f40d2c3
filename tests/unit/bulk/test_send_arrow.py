"""Arrow columns as records: every type, slices, nulls, refused data, and freed memory."""

from __future__ import annotations

import gc
import io
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from pyarrow import csv

from kprod import KafkaProducer, TopicPartition
from kprod.bulk.arrow_batches import ArrowBatches
from kprod.errors import (
    InvalidRecordError,
    KprodError,
    PartitionError,
    RecordTooLargeError,
    RecordTypeError,
)
from tests.support.scripted_cluster import ScriptedCluster
from tests.support.scripted_producer import cluster_of, producer_before

LONG = b"x" * 40  # too long to be inlined in a view
CELLS = [b"a", None, b"", LONG, b"twelve bytes", "ä".encode()]
NO_COLUMNS = dict.fromkeys(("value", "key", "headers", "partition", "timestamp"))
BYTES = [pa.binary(), pa.large_binary(), pa.binary_view()]
TEXT = [pa.string(), pa.large_string(), pa.string_view()]


def stored(cluster: ScriptedCluster, partition: int = 0) -> list[Any]:
    batches = cluster.log.get(TopicPartition("t", partition), [])
    return [record for batch in batches for record in batch.records()]


def sent(data: Any, partitions: int = 1, **arguments: Any) -> ScriptedCluster:
    cluster = cluster_of(partitions)
    with producer_before(cluster) as producer:
        handle = producer.send_arrow("t", data, **arguments)
        assert handle.get(timeout=20).records == len(handle)
    return cluster


def column(cells: list[Any], kind: Any) -> Any:
    if kind in TEXT:
        cells = [cell if cell is None else cell.decode() for cell in cells]
    return pa.array(cells, kind)


@pytest.mark.parametrize("kind", [*BYTES, *TEXT], ids=str)
@pytest.mark.parametrize("cut", [slice(None), slice(1, 5), slice(3, 3)], ids=str)
def test_bytes_and_text_of_every_layout(kind: Any, cut: slice) -> None:
    values = column(CELLS * 3, kind)
    keys = column(CELLS[::-1] * 3, kind)
    batch = pa.record_batch({"value": values, "key": keys})
    rows = list(zip(CELLS * 3, CELLS[::-1] * 3, strict=True))[cut]
    for data in (
        batch[cut],
        pa.record_batch({"value": values[cut], "key": keys[cut]}),
        pa.table(batch[cut]),
        pa.RecordBatchReader.from_batches(batch.schema, [batch[cut]]),
    ):
        assert [(r.value, r.key) for r in stored(sent(data, key="key"))] == rows


def test_a_reader_with_threads_that_run_python_code() -> None:
    """They need the GIL while the next batch is awaited."""
    lines = [b"value", *(b"row %d" % row for row in range(50_000))]
    options = csv.ReadOptions(block_size=4096)
    reader = csv.open_csv(io.BytesIO(b"\n".join(lines)), read_options=options)
    assert [record.value for record in stored(sent(reader))] == lines[1:]


@pytest.mark.parametrize(
    ("kind", "cells"),
    [
        (pa.int64(), [0, 1_700_000_000_123, None]),
        (pa.timestamp("ms"), [0, 1_700_000_000_123, None]),
        (pa.timestamp("us"), [999, 1_700_000_000_123_999, None]),
        (pa.timestamp("ns", "UTC"), [999_999, 1_700_000_000_123_999_999, None]),
    ],
    ids=str,
)
def test_timestamps_of_every_unit(kind: Any, cells: list[Any]) -> None:
    batch = pa.record_batch({"value": [b"a", b"b", b"c"], "at": pa.array(cells, kind)})
    before = datetime(2020, 1, 1, tzinfo=UTC).timestamp() * 1000
    times = [r.timestamp for r in stored(sent(batch, timestamp="at"))]
    assert times[:2] == [0, 1_700_000_000_123]
    assert times[2] > before


@pytest.mark.parametrize("kind", [pa.int32(), pa.int64()], ids=str)
def test_partitions_come_from_a_column(kind: Any) -> None:
    columns = {"p": pa.array([2, 0, None, 2], kind), "key": [b"k"] * 4}
    keyed = pa.record_batch({"value": [b"a", b"b", b"c", b"d"], **columns})
    cluster = sent(keyed, 3, partition="p", key="key")
    assert {b"a", b"d"} <= {r.value for r in stored(cluster, 2)}
    assert b"b" in {r.value for r in stored(cluster, 0)}
    assert sum(len(stored(cluster, p)) for p in range(3)) == 4


PAIRS = [[("a", b"1"), ("b", None)], None, [], [("a", b"2"), ("a", b"3")]]


@pytest.mark.parametrize(
    "kind",
    [
        pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())])),
        pa.large_list(pa.struct([("key", pa.large_string()), ("value", pa.large_binary())])),
        pa.map_(pa.string(), pa.binary()),
    ],
    ids=["list", "large_list", "map"],
)
def test_headers_come_from_lists_and_maps(kind: Any) -> None:
    cells: list[Any] = PAIRS
    if not pa.types.is_map(kind):
        cells = [
            pairs and [{"key": name, "value": value} for name, value in pairs] for pairs in PAIRS
        ]
    batch = pa.record_batch({"value": [b"1", b"2", b"3", b"4"], "h": pa.array(cells, kind)})
    wanted = [tuple(pairs or ()) for pairs in PAIRS]
    assert [tuple(r.headers) for r in stored(sent(batch, headers="h"))] == wanted
    assert [tuple(r.headers) for r in stored(sent(batch.slice(2), headers="h"))] == wanted[2:]


def test_send_arrow_writes_the_same_batches_as_send_many() -> None:
    values = [b"%d" % n * (n % 50) for n in range(4000)]
    keys = [b"%d" % (n % 97) for n in range(4000)]
    data = pa.table({"value": values, "key": keys, "at": [7] * 4000})
    ways: list[Callable[[KafkaProducer], Any]] = [
        lambda producer: producer.send_arrow("t", data, key="key", timestamp="at"),
        lambda producer: producer.send_many("t", values, keys=keys, timestamps_ms=7),
    ]
    logs = []
    for way in ways:
        cluster = cluster_of(3)
        with producer_before(cluster, batch_size=700, linger_ms=60_000) as producer:
            handle = way(producer)
            handle.get(timeout=30)
        stored_as = [[b.crc for b in log] for _, log in sorted(cluster.log.items())]
        logs.append((list(handle), stored_as))
    assert logs[0] == logs[1]


def test_serializers_get_the_bytes_of_the_columns() -> None:
    cluster = cluster_of()
    seen: list[Any] = []

    def shout(value: Any) -> bytes:
        seen.append(value)
        return bytes(value).upper()

    with producer_before(cluster, value_serializer=shout) as producer:
        data = pa.table({"value": ["a", "b"], "at": [1, 2], "p": [0, None]})
        handle = producer.send_arrow("t", data, timestamp="at", partition="p")
        assert handle.get(timeout=20).records == 2
    assert seen == [b"a", b"b"]
    assert [(r.value, r.timestamp) for r in stored(cluster)] == [(b"A", 1), (b"B", 2)]


def table(**columns: Any) -> Any:
    return pa.table({"value": [b"a", b"b"], **columns})


BAD_HEADERS = pa.array([[1], [2]], pa.list_(pa.int32()))
PAIR = pa.struct([("key", pa.string()), ("value", pa.binary())])
NULL_HEADER = pa.array([[{"key": "k", "value": b""}], [None]], pa.list_(PAIR))
MASKED_HEADER = pa.ListArray.from_arrays(
    [0, 1, 2],
    pa.StructArray.from_arrays(
        [pa.array(["k", "hidden"]), pa.array([b"", b"hidden"])],
        fields=list(PAIR),
        mask=pa.array([False, True]),
    ),
)
"""A null header whose children are not null."""


def named(names: list[bytes]) -> Any:
    """A column of one header per row, with names that Arrow does not check."""
    text = pa.array(names, pa.binary()).view(pa.string())
    pairs = pa.StructArray.from_arrays([text, pa.array([b""] * len(names))], ["key", "value"])
    return pa.ListArray.from_arrays(list(range(len(names) + 1)), pairs)


BAD: list[tuple[type[KprodError], str, Any, dict[str, Any]]] = [
    (RecordTypeError, "data: expected Arrow data", [b"a"], {}),
    (RecordTypeError, "data: expected Arrow data", pa.array([b"a"]), {}),
    (RecordTypeError, "value: there is no column 'v' among", table(), {"value": "v"}),
    (RecordTypeError, "key: there is no column 5 among 1", table(), {"key": 5}),
    (RecordTypeError, "key: expected a column's name", table(), {"key": 1.5}),
]
BAD_COLUMNS: list[tuple[type[KprodError], str, str, Any]] = [
    (RecordTypeError, "key: column 'c' must be binary or text .*, not int64", "key", [1, 2]),
    (RecordTypeError, "int32 or int64, not double", "partition", [1.0, 2.0]),
    (RecordTypeError, "a timestamp, or int64 of ms", "timestamp", ["a", "b"]),
    (RecordTypeError, "of int32", "headers", BAD_HEADERS),
    (RecordTypeError, "dictionary-encoded", "key", pa.array(["a", "b"]).dictionary_encode()),
    (InvalidRecordError, "record 1: a header or", "headers", NULL_HEADER),
    (InvalidRecordError, "record 1: a header or", "headers", MASKED_HEADER),
    (InvalidRecordError, r"1: .* not UTF-8", "headers", named([b"k", b"\xff"])),
    (PartitionError, "record 1: its partition", "partition", [0, -1]),
    (PartitionError, "record 0: its partition", "partition", [2**31, 0]),
    (InvalidRecordError, "record 1: its timestamp", "timestamp", [1, -1]),
    (InvalidRecordError, "0: its timestamp", "timestamp", pa.array([2**62, 1], pa.timestamp("s"))),
    (RecordTooLargeError, "1: .* 2000089 bytes, more than max_r", "key", [b"", b"x" * 2_000_000]),
]
BAD += [
    (error, message, table(c=cells), {role: "c"}) for error, message, role, cells in BAD_COLUMNS
]


@pytest.mark.parametrize(("error", "message", "data", "arguments"), BAD)
def test_invalid_data_is_refused_before_anything_is_queued(
    error: type[KprodError], message: str, data: Any, arguments: dict[str, Any]
) -> None:
    cluster = cluster_of()
    with producer_before(cluster) as producer, pytest.raises(error, match=message):
        producer.send_arrow("t", data, **arguments)
    assert stored(cluster) == []


@given(name=st.one_of(st.binary(max_size=6), st.text(max_size=3).map(str.encode)))
@example(name=b"\xed\xa0\x80")
@example(name=b"\xf4\x90\x80\x80")
@example(name=b"\xc0\x80")
def test_header_names_must_be_utf8_as_python_decodes_it(name: bytes) -> None:
    batch = ArrowBatches(
        "t", table(h=named([b"k", name])), {**NO_COLUMNS, "value": "value", "headers": "h"}
    )
    try:
        name.decode()
    except UnicodeDecodeError:
        with pytest.raises(InvalidRecordError, match=r"record 1: .* not UTF-8"):
            batch.next()
    else:
        assert batch.next()


@pytest.mark.parametrize("form", ["__arrow_c_array__", "__arrow_c_stream__"])
def test_exported_data_can_be_sent_only_once(form: str) -> None:
    """Data that returns the same capsules from every call."""
    data = table() if "stream" in form else table().to_batches()[0]
    capsules = getattr(data, form)()
    once = SimpleNamespace(**{form: lambda requested_schema=None: capsules})
    cluster = cluster_of()
    with producer_before(cluster) as producer:
        producer.send_arrow("t", once).get(20)
        with pytest.raises(RecordTypeError, match="the exported data was taken before"):
            producer.send_arrow("t", once)
    assert [record.value for record in stored(cluster)] == [b"a", b"b"]


ABC = pa.array([b"a", b"b", b"c"])
ROWS = pa.StructArray.from_arrays([ABC], ["value"])
MASKED_ROWS = pa.StructArray.from_arrays([ABC], ["value"], mask=pa.array([False, False, True]))


@pytest.mark.parametrize(("rows", "first"), [(MASKED_ROWS, 2), (MASKED_ROWS.slice(1), 1)])
def test_null_rows_are_refused(rows: Any, first: int) -> None:
    cluster = cluster_of()
    message = f"record {first}: the row as a whole is null"
    with producer_before(cluster) as producer, pytest.raises(InvalidRecordError, match=message):
        producer.send_arrow("t", rows)
    assert stored(cluster) == []
    assert [r.value for r in stored(sent(ROWS))] == [b"a", b"b", b"c"]
    assert [r.value for r in stored(sent(MASKED_ROWS.slice(0, 2)))] == [b"a", b"b"]


@pytest.mark.parametrize("options", [{}, {"value_serializer": bytes}], ids=["compiled", "plain"])
@pytest.mark.parametrize("stream", [False, True], ids=["table", "reader"])
@pytest.mark.parametrize("place", range(5))
def test_errors_number_all_records(options: dict[str, Any], stream: bool, place: int) -> None:
    """As the delivery numbers them; with several batches, the row in its batch is named as well."""
    times = [1, 2, 3, 4, 5]
    times[place] = -1
    rows = pa.table({"value": [b"%d" % n for n in range(5)], "at": times})
    batches = [rows[:2], rows[2:2], rows[2:4], rows[4:]]
    data: Any = pa.concat_tables(batches)
    if stream:
        flat = [
            pa.record_batch(b.combine_chunks().to_pydict(), schema=rows.schema) for b in batches
        ]
        data = pa.RecordBatchReader.from_batches(rows.schema, flat)
    cluster = cluster_of()
    with producer_before(cluster, **options) as producer:
        with pytest.raises(InvalidRecordError) as raised:
            producer.send_arrow("t", data, timestamp="at")
        error = str(raised.value)
        assert error.startswith(f"record {place}")
        assert getattr(raised.value, "accepted", 0) == place // 2 * 2
        assert (": its timestamp" if place < 2 else f"(row {place % 2} of batch ") in error
    assert [r.value for r in stored(cluster)] == [b"%d" % n for n in range(place // 2 * 2)]


def test_size_limits_apply_to_serialized_values() -> None:
    cluster = cluster_of()
    options: dict[str, Any] = {"max_request_size": 1000, "value_serializer": lambda v: v[:900]}
    with producer_before(cluster, **options) as producer:
        assert len(producer.send_arrow("t", pa.table({"value": [b"x" * 2000, b"y"]}))) == 2
        data = pa.table({"value": [b"a", b"b"], "key": [None, b"k" * 1000]})
        with pytest.raises(RecordTooLargeError, match=r"^record 1: .*'t'.*max_request_size") as e:
            producer.send_arrow("t", pa.concat_tables([data[:1], data[1:]]), key="key")
        assert e.value.accepted == 1  # type: ignore[attr-defined]
    assert [r.value for r in stored(cluster)] == [b"x" * 900, b"y", b"a"]


def test_batches_before_the_failure_of_a_stream_are_sent() -> None:
    schema = pa.schema([("value", pa.binary())])

    def batches() -> Iterator[Any]:
        yield pa.record_batch({"value": [b"a", b"b"]})
        yield pa.record_batch({"value": [b"c"]})
        raise LookupError("gone")

    cluster = cluster_of()
    with producer_before(cluster) as producer:
        with pytest.raises(OSError, match="gone") as raised:
            producer.send_arrow("t", pa.RecordBatchReader.from_batches(schema, batches()))
        assert raised.value.accepted == 3  # type: ignore[attr-defined]
    assert [r.value for r in stored(cluster)] == [b"a", b"b", b"c"]


def test_all_memory_of_arrow_is_freed() -> None:
    gc.collect()  # garbage of other tests may refer to such memory
    before = pa.total_allocated_bytes()
    for data in (pa.table({"value": [LONG] * 5000}), pa.record_batch({"value": [LONG] * 5000})):
        sent(data)
        with producer_before(cluster_of()) as producer, pytest.raises(RecordTypeError):
            producer.send_arrow("t", data, key="missing")
    del data
    gc.collect()
    assert pa.total_allocated_bytes() == before
