"""Invalid rows: the task fails, or they are skipped, or they become dead letters."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

from kprod.admin import read_topic
from kprod.broker import EmbeddedBroker
from kprod.broker.log.log_config import LogConfig
from kprod.errors import KprodError
from kprod.spark import RowErrorLimitExceeded
from tests.spark.one_task import report_of, values

ROWS = 2_000
LARGEST = 20_000  # bytes of a batch that the broker takes
LETTERS: dict[str, Any] = {"on_row_error": "dead_letter", "dead_letter_topic": "dead"}

BROKER = {"default_partitions": 2, "log_config": LogConfig(max_message_bytes=LARGEST)}


def mixed_rows() -> pa.RecordBatch:
    """One row in a hundred is invalid: by its topic, partition, timestamp, or size."""
    names = ("topic", "partition", "partition", "timestamp", "value")
    rows: list[dict[str, Any]] = [
        {"value": b"row %d" % row, "topic": "good", "partition": None, "timestamp": 7}
        for row in range(ROWS)
    ]
    for number, row in enumerate(rows[::100]):
        large = row["value"].ljust(2 * LARGEST)  # only the broker refuses it
        row[names[number % 5]] = (None, -3, 9, -1, large)[number % 5]
    return pa.RecordBatch.from_pylist(rows)


def test_dead_letters_are_exactly_the_invalid_rows(bootstrap: str) -> None:
    report = report_of(bootstrap, None, [mixed_rows()], **LETTERS, compression_type="none")
    assert (report["records"], report["dead_letters"], report["skipped"]) == (ROWS - 20, 20, 0)
    assert values(bootstrap, "good") == sorted(b"row %d" % row for row in range(ROWS) if row % 100)
    dead = [record for _, record in read_topic(bootstrap, "dead")]
    assert sorted(int((record.value or b"").split()[1]) for record in dead) == list(
        range(0, ROWS, 100)
    )
    headers = [dict(record.headers) for record in dead]
    reasons = sorted((h["kprod.dlq.column"], h["kprod.dlq.reason"]) for h in headers)
    assert reasons == sorted(
        4
        * [
            (b"topic", b"RecordTypeError"),
            (b"partition", b"PartitionError"),
            (b"partition", b"PartitionError"),
            (b"timestamp", b"InvalidRecordError"),
            (b"value", b"RecordTooLargeError"),
        ]
    )
    assert {h["kprod.dlq.task"] for h in headers} == {b"-1"}
    assert {h.get("kprod.dlq.truncated") for h in headers} == {None, b"%d" % (2 * LARGEST)}
    ranges = {(o["topic"], o["partition"]): o["records"] for o in report["offsets"]}
    assert sum(count for (topic, _), count in ranges.items() if topic == "dead") == 20


def test_single_rows_are_rejected_like_rows_of_batches(bootstrap: str) -> None:
    rows = [row | {"topic": row["topic"] and "by-row"} for row in mixed_rows().to_pylist()]
    few = [row for row in rows if row["partition"] != 9]  # each of these waits for its partition
    report = report_of(bootstrap, None, few, on_row_error="skip", compression_type="none")
    assert (report["records"], report["skipped"]) == (ROWS - 20, 16)
    assert any("RecordTooLargeError" in reason for reason in report["reasons"])


def test_more_invalid_rows_than_the_limit_fail_the_task(bootstrap: str) -> None:
    with pytest.raises(RowErrorLimitExceeded, match="more than 3 rows"):
        report_of(bootstrap, None, [mixed_rows()], on_row_error="skip", max_row_errors=3)


def test_without_a_policy_the_first_invalid_row_fails_the_task(bootstrap: str) -> None:
    with pytest.raises(KprodError, match="record 0: the record has no topic"):
        report_of(bootstrap, None, [mixed_rows()])


def test_a_row_that_the_serializer_refuses_becomes_a_dead_letter(bootstrap: str) -> None:
    """A dead letter does not go through the serializer again."""

    def serialized(number: int) -> bytes:
        if number == 2:
            raise ValueError("two")
        return b"x" * LARGEST * 1000 if number == 3 else b"%d" % number

    rows = [*({"value": number} for number in range(5)), {"no": "value"}]
    options = {**LETTERS, "dead_letter_topic": "unserialized"}
    report = report_of(bootstrap, "taken", rows, value_serializer=serialized, **options)
    assert (report["records"], report["dead_letters"]) == (3, 3)
    assert values(bootstrap, "taken") == [b"0", b"1", b"4"]
    assert values(bootstrap, "unserialized") == [b"2", b"3", b"{'no': 'value'}"]


@pytest.mark.parametrize("shape", ["batches", "batches with partitions", "dicts"])
def test_rows_with_an_invalid_topic_become_dead_letters(bootstrap: str, shape: str) -> None:
    rows: list[dict[str, Any]] = [
        {"topic": "named" if n % 3 else "no name", "value": b"%d" % n} for n in range(9)
    ]
    if shape == "batches with partitions":
        rows = [row | {"partition": 0} for row in rows]
    items = rows if shape == "dicts" else [pa.RecordBatch.from_pylist(rows)]
    report = report_of(bootstrap, None, items, **{**LETTERS, "dead_letter_topic": "nameless"})
    assert (report["records"], report["dead_letters"]) == (6, 3)
    dead_letters = [record for _, record in read_topic(bootstrap, "nameless")][-3:]
    assert sorted(record.value or b"" for record in dead_letters) == [b"0", b"3", b"6"]
    for dead_letter in dead_letters:
        headers = dict(dead_letter.headers)
        assert (headers["kprod.dlq.topic"], headers["kprod.dlq.column"]) == (b"no name", b"topic")


def test_dead_letters_and_reasons_are_truncated() -> None:
    def serialized(value: bytes) -> bytes:
        raise ValueError("x" * 2_000_000)

    rows = [{"topic": "t", "value": b"v"}, {"topic": "t" * 2_000_000, "value": b"v"}]
    with EmbeddedBroker() as broker:
        servers = broker.bootstrap_servers
        report = report_of(servers, None, rows, value_serializer=serialized, **LETTERS)
        dead_letters = [dict(record.headers) for record in broker.records("dead")]
    assert report["dead_letters"] == 2
    assert max(map(len, report["reasons"])) < 1_000
    assert max(len(text or b"") for letter in dead_letters for text in letter.values()) < 20_000
    assert {letter["kprod.dlq.reason"] for letter in dead_letters} == {
        b"SerializationError",
        b"InvalidTopicError",
    }


@pytest.mark.parametrize("shape", ["batches", "dicts", "pairs"])
def test_rows_after_one_that_the_broker_refuses_are_stored_once(shape: str) -> None:
    rows = [{"key": b"k" if n % 7 else None, "value": b"%d" % n} for n in range(ROWS)]
    shapes: dict[str, list[Any]] = {
        "batches": [pa.RecordBatch.from_pylist(rows)],
        "dicts": rows,
        "pairs": [(row["key"], row["value"]) for row in rows],
    }
    with EmbeddedBroker() as broker:
        broker.create_topic("compacted", 1, {"cleanup.policy": "compact"})
        servers = broker.bootstrap_servers
        report = report_of(servers, "compacted", shapes[shape], on_row_error="skip")
        stored = [int(record.value or b"") for record in broker.records("compacted")]
    good = [n for n in range(ROWS) if n % 7]
    assert sorted(stored) == good
    assert (report["records"], report["skipped"]) == (len(good), ROWS - len(good))


@pytest.mark.parametrize("partitioner", ["default", "crc32"])  # crc32: a send for each row
def test_only_the_pairs_that_are_too_large_are_rejected(bootstrap: str, partitioner: str) -> None:
    topic = f"pairs-{partitioner}"
    options: dict[str, Any] = {"compression_type": "none", "partitioner": partitioner}
    pairs = [(b"k", bytes(3_000_000) if n in (0, 500, 999) else b"%d" % n) for n in range(1_000)]
    report = report_of(bootstrap, topic, pairs, on_row_error="skip", **options)
    assert (report["records"], report["skipped"]) == (997, 3)
    written = [int(record.value or b"") for _, record in read_topic(bootstrap, topic)]
    assert written == [n for n in range(1_000) if n not in (0, 500, 999)]


def unreadable(rows: int) -> pa.RecordBatch:
    """Its first rows have a null topic, a topic that is no UTF-8, and such headers."""
    texts = [b"\xff" if row == 1 else b"readable" for row in range(rows)]
    topics = pa.Array.from_buffers(pa.string(), rows, pa.array(texts).buffers())
    names = pa.array([b"\xff" if row == 3 else b"h" for row in range(rows)])
    headers = pa.StructArray.from_arrays(
        [pa.Array.from_buffers(pa.string(), rows, names.buffers()), pa.array([b"x"] * rows)],
        names=["key", "value"],
        mask=pa.array([row == 2 for row in range(rows)]),
    )
    return pa.RecordBatch.from_pydict(
        {
            "value": [b"row %d" % row for row in range(rows)],
            "topic": pa.compute.if_else(pa.array([row != 0 for row in range(rows)]), topics, None),
            "headers": pa.ListArray.from_arrays(pa.array(range(rows + 1), pa.int32()), headers),
        }
    )


@pytest.mark.parametrize("rows", [6, 60])  # one by one, and as columns
@pytest.mark.parametrize("options", [{}, {"value_serializer": bytes}])
def test_only_the_unreadable_rows_are_rejected(rows: int, options: dict[str, Any]) -> None:
    with EmbeddedBroker() as broker:
        servers = broker.bootstrap_servers
        report = report_of(servers, None, [unreadable(rows)], **LETTERS, **options)
        assert (report["records"], report["dead_letters"]) == (rows - 4, 4)
        expected = [b"row %d" % row for row in range(rows)]
        assert values(servers, "readable") == sorted(expected[4:])
        assert values(servers, "dead") == expected[:4]
        reasons = {dict(r.headers)["kprod.dlq.reason"] for _, r in read_topic(servers, "dead")}
        assert reasons <= {b"RecordTypeError", b"InvalidRecordError"}
        with pytest.raises(KprodError):
            report_of(servers, None, [unreadable(rows)], **options)
