"""Executors in processes of their own deliver every row, and an independent reader says so."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator

import pytest
from pyspark import TaskContext
from pyspark.sql import SparkSession

from kprod.admin import read_topic
from kprod.records.record_batch import StoredRecord
from kprod.spark import executor_producer, partition_writer

pytestmark = pytest.mark.full

ROWS = 20_000
TASKS = 4


def stored(kafka: str, topic: str) -> list[StoredRecord]:
    return [record for _partition, record in read_topic(kafka, topic)]


def once_each(records: list[StoredRecord], rows: int = ROWS) -> bool:
    return Counter(r.value for r in records) == Counter(b"row %d" % n for n in range(rows))


def test_map_partitions_delivers_every_row_once(cluster: SparkSession, kafka: str) -> None:
    rows = cluster.sparkContext.parallelize([f"row {n}" for n in range(ROWS)], TASKS)
    reports = rows.mapPartitions(partition_writer("mapped", bootstrap_servers=kafka)).collect()
    assert once_each(stored(kafka, "mapped"))
    assert sorted(report["task"] for report in reports) == list(range(TASKS))
    assert sum(report["records"] for report in reports) == ROWS
    assert len({report["pid"] for report in reports}) > 1, "more than one process wrote"


def test_a_task_that_is_tried_again_loses_nothing(cluster: SparkSession, kafka: str) -> None:
    def break_once(rows: Iterable[str]) -> Iterator[str]:
        context = TaskContext.get()
        assert context is not None
        for number, row in enumerate(rows):
            if number == 3_000 and context.attemptNumber() == 0:
                raise RuntimeError("the first attempt breaks here")
            yield row

    rows = cluster.sparkContext.parallelize([f"row {n}" for n in range(ROWS)], TASKS)
    writer = partition_writer("retried", bootstrap_servers=kafka)
    reports = rows.mapPartitions(break_once).mapPartitions(writer).collect()
    assert [report["attempt"] for report in reports] == [1] * TASKS
    assert sum(report["records"] for report in reports) == ROWS
    assert {r.value for r in stored(kafka, "retried")} == {b"row %d" % n for n in range(ROWS)}


def test_a_function_of_ones_own_may_use_the_shared_producer(
    cluster: SparkSession, kafka: str
) -> None:
    def send(rows: Iterable[str]) -> Iterator[int]:
        with executor_producer(bootstrap_servers=kafka) as producer:
            for row in rows:
                producer.send("own", row.encode())
        yield producer.outcomes.records

    rows = cluster.sparkContext.parallelize([f"row {n}" for n in range(ROWS)], TASKS)
    counts: list[int] = rows.mapPartitions(send).collect()
    assert sum(counts) == ROWS
    assert once_each(stored(kafka, "own"))
