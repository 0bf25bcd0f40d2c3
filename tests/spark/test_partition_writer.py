"""The writer as a plain callable: what runs inside a task, without the task."""

from __future__ import annotations

import dataclasses
import pickle
import socket
import threading
from typing import Any

import pyarrow as pa
import pytest
from pyspark import cloudpickle

from kprod.admin import read_topic
from kprod.broker.log.log_config import LogConfig
from kprod.errors import (
    ConfigError,
    InvalidTopicError,
    PartitionError,
    RecordTooLargeError,
    RecordTypeError,
)
from kprod.spark import PartitionWriter, partition_writer
from kprod.types import ProducerRecord

BROKER = {"default_partitions": 2, "log_config": LogConfig(max_message_bytes=100_000)}


def values(bootstrap: str, topic: str) -> list[bytes]:
    return sorted(record.value or b"" for _partition, record in read_topic(bootstrap, topic))


def test_a_partition_is_written_when_the_call_returns(bootstrap: str) -> None:
    items = [b"%03d" % n for n in range(500)]
    writer = partition_writer("eager", bootstrap_servers=bootstrap)
    reports = writer(iter(items))
    assert values(bootstrap, "eager") == items
    (report,) = reports
    assert report["records"] == 500
    assert report["bytes"] == 1_500
    assert sum(r["records"] for r in report["offsets"]) == 500
    assert (report["task"], report["attempt"]) == (-1, -1), "there is no task here"


def test_without_reports_everything_is_written_all_the_same(bootstrap: str) -> None:
    writer = partition_writer("silent", bootstrap_servers=bootstrap, output="none")
    assert list(writer(iter([b"a", b"b"]))) == []
    assert values(bootstrap, "silent") == [b"a", b"b"]


def test_a_record_that_cannot_be_sent_is_found_in_the_whole_partition(bootstrap: str) -> None:
    writer = partition_writer("numbered", bootstrap_servers=bootstrap)
    rows = pa.record_batch({"value": pa.array([b"v"] * 20), "partition": pa.array([0] * 20)})
    bad = pa.record_batch({"value": pa.array([b"v"] * 20), "partition": pa.array([0] * 19 + [-1])})
    with pytest.raises(PartitionError, match=r"^record 19: its partition") as raised:
        writer(iter([bad]))
    assert not hasattr(raised.value, "__notes__")
    with pytest.raises(PartitionError, match=r"^record 19: its partition") as raised:
        writer(iter([rows, rows.slice(0, 3), bad]))
    assert "record 0 of this call is record 23 of the task" in raised.value.__notes__


def test_columns_become_the_records_that_their_rows_would(bootstrap: str) -> None:
    """Dictionaries are read row by row, everything else goes to ``send_arrow`` as it is."""
    keys = pa.array([None if n % 7 == 0 else f"k{n % 5}" for n in range(300)])
    rest = {
        "value": pa.array([None if n % 11 == 0 else b"v%d" % n for n in range(300)]),
        "headers": pa.array(
            [[("h", b"%d" % n)] if n % 3 else None for n in range(300)],
            pa.map_(pa.string(), pa.binary()),
        ),
        "partition": pa.array([None if n % 7 else n % 2 for n in range(300)], pa.int32()),
        "timestamp": pa.array(
            [1_700_000_000_000_999 + n for n in range(300)], pa.timestamp("us", "UTC")
        ),
    }
    written = {}
    for topic, column in {"columns": keys, "rows": keys.dictionary_encode()}.items():
        batch = pa.RecordBatch.from_pydict({"key": column, **rest})
        writer = partition_writer(topic, bootstrap_servers=bootstrap)
        (report,) = writer(iter([batch.slice(0, 100), batch.slice(100)]))
        (row,) = report.to_pylist()
        found = [
            (partition, record.key, record.value, record.headers, record.timestamp)
            for partition, record in read_topic(bootstrap, topic)
        ]
        spans = [(span["partition"], span["records"]) for span in row["offsets"]]
        written[topic] = (sorted(found, key=repr), row["records"], row["bytes"], spans)
    assert written["columns"] == written["rows"]
    assert written["columns"][1] == 300


class Louder:
    """An interceptor that makes values longer."""

    def on_send(self, record: ProducerRecord) -> ProducerRecord:
        return dataclasses.replace(record, value=record.value + b"!!!")


def written_by(options: dict[str, Any], bootstrap: str, topic: str) -> tuple[int, list[bytes]]:
    """What 20 rows of "a" weigh by the report, and what of them is in the topic."""
    writer = partition_writer(topic, bootstrap_servers=bootstrap, **options)
    (report,) = writer(iter([pa.RecordBatch.from_pydict({"value": ["a"] * 20})]))
    return report.to_pylist()[0]["bytes"], values(bootstrap, topic)


def test_code_of_the_application_sees_every_row(bootstrap: str) -> None:
    interceptor: dict[str, Any] = {"interceptors": [Louder()]}
    assert written_by(interceptor, bootstrap, "louder") == (80, [b"a!!!"] * 20)
    serializer: dict[str, Any] = {"value.serializer": lambda text: text.upper().encode() * 2}
    assert written_by(serializer, bootstrap, "serialized") == (40, [b"AA"] * 20)


def test_record_batches_without_rows_need_no_topic() -> None:
    writer = partition_writer("t", bootstrap_servers="127.0.0.1:1")
    nothing = pa.RecordBatch.from_pydict({"value": pa.array([], pa.string())})
    (report,) = writer(iter([nothing]))
    assert report.to_pylist()[0]["records"] == 0


def test_an_empty_partition_needs_no_broker() -> None:
    writer = partition_writer("t", bootstrap_servers="127.0.0.1:1")
    assert list(writer(iter(()))) == []


@pytest.mark.parametrize(
    ("item", "error"),
    [(bytes(2_000_000), RecordTooLargeError), (17, RecordTypeError), (None, RecordTypeError)],
)
def test_what_cannot_be_sent_fails_the_call(
    bootstrap: str, item: Any, error: type[Exception]
) -> None:
    writer = partition_writer("unsendable", bootstrap_servers=bootstrap)
    with pytest.raises(error):
        writer(iter([b"fits", item]))
    with pytest.raises(error):
        writer(iter([item, b"fits"]))


def test_a_writer_survives_the_journey_to_an_executor(bootstrap: str) -> None:
    options: dict[str, Any] = {"value_serializer": lambda text: text.upper().encode()}
    writer = partition_writer("shipped", bootstrap_servers=bootstrap, **options)
    arrived = pickle.loads(cloudpickle.dumps(writer))  # type: ignore[no-untyped-call]
    assert isinstance(arrived, PartitionWriter)
    list(arrived(iter(["a"])))
    assert values(bootstrap, "shipped") == [b"A"]


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        ({"output": "rows"}, 'expected "report" or "none"'),
        ({"lingr_ms": 5}, "did you mean 'linger_ms'"),
        ({"acks": 2}, "acks: expected"),
        ({"timeout": -1}, "timeout: expected seconds"),
        ({"timeout": float("nan")}, "timeout: expected seconds"),
        ({"timeout": float("inf")}, "timeout: expected seconds"),
        ({"timeout": "30"}, "timeout: expected seconds"),
        ({"timeout": True}, "timeout: expected seconds"),
        ({"on_row_error": "skip", "max_row_errors": -1}, "max_row_errors: expected a whole"),
        ({"on_row_error": "skip", "max_row_errors": "10"}, "max_row_errors: expected a whole"),
        ({"on_row_error": "skip", "max_row_errors": True}, "max_row_errors: expected a whole"),
        ({"on_row_error": "skip", "max_row_errors": 0.5}, "max_row_errors: expected a whole"),
        (
            {"on_row_error": "dead_letter", "dead_letter_topic": "dead letters"},
            "dead_letter_topic: 'dead letters' is not a valid topic name",
        ),
        ({"on_row_error": "dead_letter", "dead_letter_topic": ""}, "dead_letter_topic: ''"),
    ],
    ids=str,
)
def test_a_bad_option_is_told_on_the_driver(options: dict[str, Any], complaint: str) -> None:
    with pytest.raises(ConfigError, match=complaint):
        partition_writer("t", bootstrap_servers="localhost:9092", **options)


@pytest.mark.parametrize(
    ("topic", "error"),
    [("device readings", InvalidTopicError), ("", InvalidTopicError), (7, RecordTypeError)],
)
def test_a_topic_that_cannot_be_is_told_on_the_driver(topic: Any, error: type[Exception]) -> None:
    with pytest.raises(error, match="topic"):
        partition_writer(topic, bootstrap_servers="localhost:9092")


def test_what_cannot_travel_is_told_on_the_driver() -> None:
    lock = threading.Lock()
    with socket.socket() as connected, pytest.raises(ConfigError, match="'value_serializer'"):
        partition_writer(
            "t",
            bootstrap_servers="localhost:9092",
            value_serializer=lambda value: (lock, connected, value)[2],
        )


def test_the_options_of_a_writer_are_not_shown() -> None:
    writer = partition_writer("t", bootstrap_servers="host-with-a-name:9092")
    assert "host-with-a-name" not in repr(writer)


def test_a_job_batches_more_unless_told_otherwise() -> None:
    codec: dict[str, Any] = {"compression.codec": "zstd"}
    writer = partition_writer("t", bootstrap_servers="b:1", **codec)
    assert writer.producer.options["linger_ms"] == 50
    assert "compression_type" not in writer.producer.options
