"""Items that go to the producer by the slice: the records and the order of one by one."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from pyspark.sql import Row

from kprod.admin import read_topic
from kprod.errors import RecordTooLargeError, RecordTypeError
from kprod.spark import partition_writer
from kprod.spark.executor_producer import MeasuringProducer
from kprod.spark.record_plan import Rows
from kprod.spark.task_sender import MOST_BYTES, MOST_ROWS, TaskSender

BROKER = {"default_partitions": 1}


def stored(bootstrap: str, topic: str) -> list[tuple[bytes | None, bytes | None]]:
    return [(record.key, record.value) for _, record in read_topic(bootstrap, topic)]


Keyed = Row("key", "value")
Turned = Row("value", "key")
Alone = Row("value")
Marked = Row("value", "headers")

KINDS: list[tuple[Any, bytes | None, bytes | None]] = [
    (Keyed("k", bytearray(b"v")), b"k", b"v"),
    (Keyed(None, "v"), None, b"v"),
    (Keyed(b"k", None), b"k", None),
    (Turned("v", "k"), b"k", b"v"),
    (Alone(b"v"), None, b"v"),
    (Marked("v", [("h", b"1")]), None, b"v"),
    (("k", "v"), b"k", b"v"),
    (("k", "v", None, 1_700_000_000_000), b"k", b"v"),
    ({"key": "k", "value": bytearray(b"v")}, b"k", b"v"),
    (b"v", None, b"v"),
    (bytearray(b"v"), None, b"v"),
    ("v", None, b"v"),
]


def test_items_of_all_kinds_keep_their_order(bootstrap: str) -> None:
    items, expected = [], []
    for turn in range(40):
        for number, (item, key, value) in enumerate(KINDS):
            items += [item] * (turn * number % 7) + [Alone(f"{turn} {number}")]
            expected += [(key, value)] * (turn * number % 7) + [(None, b"%d %d" % (turn, number))]
    writer = partition_writer("mixed", bootstrap_servers=bootstrap)
    (report,) = writer(iter(items))
    assert stored(bootstrap, "mixed") == expected
    payload = sum(len(part or b"") for record in expected for part in record)
    assert (report["records"], report["bytes"]) == (len(expected), payload)


def test_what_is_no_record_fails_in_the_midst_of_a_slice(bootstrap: str) -> None:
    writer = partition_writer("odd", bootstrap_servers=bootstrap)
    with pytest.raises(RecordTypeError, match="a tuple of 7"):
        writer(iter([b"v"] * 100 + [tuple(range(7))] + [b"v"] * 100))
    with pytest.raises(RecordTooLargeError):
        writer(iter([b"v"] * 100 + [bytes(2_000_000)]))


class Slices(MeasuringProducer):
    """Takes what a task sends, and keeps how many records came at a time."""

    def __init__(self) -> None:
        super().__init__()
        self.sizes: list[int] = []

    def send_rows(self, rows: Rows) -> None:
        self.sizes.append(rows.num_rows)


def sizes(items: Iterator[Any], clock: list[float]) -> list[int]:
    slices = Slices()
    plan = partition_writer("t", bootstrap_servers="broker:9092").plan
    TaskSender(plan, slices, now=lambda: clock[0]).send_items(items)
    return slices.sizes


def test_slices_grow_while_items_are_small_and_come_at_once() -> None:
    found = sizes(iter([b"v"] * 4_000), [0.0])
    assert found[:4] == [1, 2, 4, 8]
    assert max(found) == MOST_ROWS


def test_large_items_do_not_wait_for_many_others() -> None:
    found = sizes(iter([bytes(MOST_BYTES // 4)] * 100), [0.0])
    assert max(found) * MOST_BYTES // 4 <= 2 * MOST_BYTES


def test_items_that_come_slowly_do_not_wait_for_each_other() -> None:
    clock = [0.0]

    def slow() -> Iterator[bytes]:
        yield from [b"v"] * 2_000
        for _ in range(2_000):
            clock[0] += 1
            yield b"v"

    found = sizes(slow(), clock)
    assert max(found) == MOST_ROWS
    assert set(found[-500:]) == {1}
