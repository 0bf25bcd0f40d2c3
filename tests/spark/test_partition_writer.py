"""The writer as a plain callable: what runs inside a task, without the task."""

from __future__ import annotations

import dataclasses
from typing import Any

import pyarrow as pa
import pytest

from kprod.admin import read_topic
from kprod.errors import PartitionError
from kprod.spark import partition_writer
from kprod.types import ProducerRecord
from tests.spark.one_task import report_of, values

BROKER = {"default_partitions": 2}


def test_a_partition_is_written_when_the_call_returns(bootstrap: str) -> None:
    items = [b"%03d" % n for n in range(500)]
    reports = partition_writer("eager", bootstrap_servers=bootstrap)(iter(items))
    assert values(bootstrap, "eager") == items
    (report,) = reports
    assert (report["records"], report["bytes"]) == (500, 1_500)
    assert sum(r["records"] for r in report["offsets"]) == 500
    assert (report["task"], report["attempt"]) == (-1, -1), "there is no task here"
    writer = partition_writer("silent", bootstrap_servers=bootstrap, output="none")
    assert list(writer(iter([b"a", b"b"]))) == []
    assert values(bootstrap, "silent") == [b"a", b"b"]


def test_an_error_numbers_its_record_within_the_whole_partition(bootstrap: str) -> None:
    writer = partition_writer("numbered", bootstrap_servers=bootstrap)
    rows = pa.record_batch({"value": pa.array([b"v"] * 20), "partition": pa.array([0] * 20)})
    bad = pa.record_batch({"value": pa.array([b"v"] * 20), "partition": pa.array([0] * 19 + [-1])})
    with pytest.raises(PartitionError, match=r"^record 19: its partition") as raised:
        writer(iter([bad]))
    assert not hasattr(raised.value, "__notes__")
    with pytest.raises(PartitionError, match=r"^record 19: its partition") as raised:
        writer(iter([rows, rows.slice(0, 3), bad]))
    assert "record 0 of this call is record 23 of the task" in raised.value.__notes__


def test_columns_and_rows_become_the_same_records(bootstrap: str) -> None:
    kinds = {"headers": pa.map_(pa.string(), pa.binary()), "timestamp": pa.timestamp("us", "UTC")}
    columns: dict[str, list[Any]] = {
        "key": [None if n % 7 == 0 else f"k{n % 5}" for n in range(300)],
        "value": [None if n % 11 == 0 else b"v%d" % n for n in range(300)],
        "headers": [[("h", b"%d" % n)] if n % 3 else None for n in range(300)],
        "partition": [None if n % 7 else n % 2 for n in range(300)],
        "timestamp": [1_700_000_000_000_999 + n for n in range(300)],
    }
    arrays = {name: pa.array(cells, kinds.get(name)) for name, cells in columns.items()}
    batch = pa.RecordBatch.from_pydict(arrays)
    written = {}
    for topic, items in {
        "columns": [batch.slice(0, 100), batch.slice(100)],
        "rows": batch.to_pylist(),
    }.items():
        report = report_of(bootstrap, topic, items)
        found = [
            (partition, record.key, record.value, record.headers, record.timestamp)
            for partition, record in read_topic(bootstrap, topic)
        ]
        spans = [(span["partition"], span["records"]) for span in report["offsets"]]
        written[topic] = (sorted(found, key=repr), report["records"], report["bytes"], spans)
    assert written["columns"] == written["rows"]
    assert written["columns"][1] == 300


class Appending:
    def on_send(self, record: ProducerRecord) -> ProducerRecord:
        return dataclasses.replace(record, value=record.value + b"!!!")


@pytest.mark.parametrize(
    ("topic", "options", "nbytes", "value"),
    [
        ("intercepted", {"interceptors": [Appending()]}, 80, b"a!!!"),
        ("serialized", {"value.serializer": lambda text: text.upper().encode() * 2}, 40, b"AA"),
    ],
    ids=["interceptor", "serializer"],
)
def test_interceptors_and_serializers_see_every_row(
    bootstrap: str, topic: str, options: dict[str, Any], nbytes: int, value: bytes
) -> None:
    rows = pa.RecordBatch.from_pydict({"value": ["a"] * 20})
    assert report_of(bootstrap, topic, [rows], **options)["bytes"] == nbytes
    assert values(bootstrap, topic) == [value] * 20


def test_an_empty_partition_needs_no_broker() -> None:
    unreachable = "127.0.0.1:1"
    rows = pa.RecordBatch.from_pydict({"value": pa.array([], pa.string())})
    assert report_of(unreachable, "t", [rows])["records"] == 0
    assert list(partition_writer("t", bootstrap_servers=unreachable)(iter(()))) == []


def test_a_job_lingers_longer_by_default() -> None:
    codec: dict[str, Any] = {"compression.codec": "zstd"}
    writer = partition_writer("t", bootstrap_servers="b:1", **codec)
    assert writer.producer.options["linger_ms"] == 50
    assert "compression_type" not in writer.producer.options
