"""Spark closes the input of a task before its last row: the rows so far must not be committed."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession

from kprod.admin import open_transactions
from kprod.broker import EmbeddedBroker
from kprod.spark import partition_writer, sharded, write
from kprod.spark.options import Delivery
from tests.spark.exactly_once.test_spark_facts import once
from tests.spark.exactly_once.test_surfaces import PARTITIONS, ROWS, frame
from tests.support.committed_records import committed
from tests.support.waiting import await_true

pytestmark = [pytest.mark.full, pytest.mark.timeout(600)]

BATCH_SIZE = "spark.sql.execution.arrow.maxRecordsPerBatch"


@pytest.fixture(autouse=True)
def small_batches(cluster: SparkSession) -> Iterator[None]:
    before = cluster.conf.get(BATCH_SIZE)
    cluster.conf.set(BATCH_SIZE, "10")
    yield
    cluster.conf.set(BATCH_SIZE, before or "10000")


def wide(spark: SparkSession) -> DataFrame:
    """Ten rows are more than Spark's buffer of 64 KiB."""
    return frame(spark).selectExpr("key", "rpad(value, 10000) as value")


def fails(fails_now: Callable[[], bool]) -> Callable[[Iterable[Any]], Iterator[Any]]:
    """A Python function, in another process, that raises after most of the rows."""

    def most_rows(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for number, batch in enumerate(batches):
            yield batch
            time.sleep(0.02)  # the writer has most of them by then
            if number == 7 and fails_now():
                raise RuntimeError("the rows cannot be read")

    return most_rows


@pytest.mark.parametrize("delivery", ["exactly_once", "atomic"])
def test_a_task_whose_input_fails_commits_no_rows(
    cluster: SparkSession, delivery: Delivery
) -> None:
    with EmbeddedBroker(topics={"cut": PARTITIONS}) as broker:
        kafka = broker.bootstrap_servers
        read = wide(cluster).mapInArrow(fails(lambda: True), "key string, value string")
        with pytest.raises(Exception, match="the rows cannot be read"):
            write(read, "cut", bootstrap_servers=kafka, delivery=delivery, progress=False)
        await_true(lambda: not open_transactions(kafka), 60, "a transaction stays open")
        assert committed(kafka, "cut", PARTITIONS) == []


@pytest.mark.parametrize("on_row_error", ["fail", "skip"])
def test_a_retry_after_failed_input_writes_all_rows(
    cluster: SparkSession, kafka: str, tmp_path: Path, on_row_error: Any
) -> None:
    """With ``skip`` the rows are not compared with the marker of the first attempt."""
    topic = f"cut-once-{on_row_error}"
    read = wide(cluster).mapInArrow(
        fails(lambda: once(tmp_path, "failed")), "key string, value string"
    )
    given: dict[str, Any] = {"delivery": "exactly_once", "on_row_error": on_row_error}
    result = write(read, topic, bootstrap_servers=kafka, progress=False, **given)
    assert (tmp_path / "failed").exists()
    values = sorted(value.rstrip() for value in committed(kafka, topic, PARTITIONS))
    assert values == sorted(b"row %d" % row for row in range(ROWS))
    assert result.records == ROWS


def test_a_function_may_write_a_part_of_the_rows(cluster: SparkSession) -> None:
    with EmbeddedBroker(topics={"part": PARTITIONS}) as broker:
        writer = partition_writer(
            "part", bootstrap_servers=broker.bootstrap_servers, delivery="exactly_once"
        )

        def writes_a_part(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            yield from writer(islice(batches, 3))

        reports = sharded(wide(cluster), 2).mapInArrow(writes_a_part, writer.schema).collect()
        assert [one["records"] for one in reports] == [30, 30]
        assert len(committed(broker.bootstrap_servers, "part", PARTITIONS)) == 60
