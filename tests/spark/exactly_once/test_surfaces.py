"""Exactly-once and atomic delivery through every writing API, on a cluster."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.errors import AnalysisException, PySparkException, StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.functions import rand

from kprod.admin import open_transactions
from kprod.errors import ConfigError
from kprod.spark import WriteFailed, WriteResult, foreach_batch, partition_writer, sharded, write
from kprod.spark.options import Delivery
from tests.spark.lines import Lines, pour
from tests.support.committed_records import committed

pytestmark = [pytest.mark.full, pytest.mark.timeout(600)]

ROWS = 400
TASKS = 4
PARTITIONS = 3
ONCE: dict[str, Any] = {"delivery": "exactly_once", "progress": False}
BOTH = pytest.mark.parametrize("delivery", ["exactly_once", "atomic"])


def frame(spark: SparkSession, rows: int = ROWS) -> DataFrame:
    return spark.range(0, rows, 1, TASKS).selectExpr(
        "cast(id as string) as key", "concat('row ', id) as value"
    )


def assert_once_each(kafka: str, topic: str, rows: int = ROWS) -> None:
    found = sorted(committed(kafka, topic, PARTITIONS))
    assert found == sorted(b"row %d" % row for row in range(rows))
    assert open_transactions(kafka) == []


@BOTH
def test_a_frame_is_written_in_one_transaction_per_task(
    cluster: SparkSession, kafka: str, delivery: Delivery
) -> None:
    topic = f"frame-{delivery}"
    given: dict[str, Any] = {**ONCE, "bootstrap_servers": kafka, "delivery": delivery}
    result = write(frame(cluster), topic, **given)
    assert_once_each(kafka, topic)
    assert (result.records, result.committed, result.already_there) == (ROWS, TASKS, 0)
    assert len(set(result.transactional_ids)) == TASKS
    assert all(shard.prepared is None for shard in result.shards)
    assert "4 committed, 0 already there" in str(result)
    again = write(frame(cluster), topic, **given)
    assert again.committed == TASKS, "each call is a job of its own"


def test_an_invalid_row_aborts_the_whole_atomic_frame(cluster: SparkSession, kafka: str) -> None:
    def serialized(value: str) -> bytes:
        if value == "row 350":
            raise RuntimeError("this row is refused")
        return value.encode()

    given: dict[str, Any] = {"delivery": "atomic", "value_serializer": serialized}
    with pytest.raises(WriteFailed, match="is refused; the transactions of the other tasks"):
        write(frame(cluster), "failed-frame", bootstrap_servers=kafka, **given)
    assert committed(kafka, "failed-frame", PARTITIONS) == []
    assert open_transactions(kafka) == []


def test_a_job_restarted_with_its_id_writes_nothing_new(cluster: SparkSession, kafka: str) -> None:
    given = {"bootstrap_servers": kafka, "job_id": "nightly", "shards": 5, **ONCE}
    first = write(frame(cluster), "once-job", **given)
    second = write(frame(cluster).coalesce(1), "once-job", **given)
    assert_once_each(kafka, "once-job")
    assert (first.committed, second.committed, second.already_there) == (5, 0, 5)
    assert second.records == first.records == ROWS
    assert second.offsets == first.offsets
    with pytest.raises(WriteFailed, match="started with 5 shards, and now has 4"):
        write(frame(cluster), "once-job", **{**given, "shards": 4})
    with pytest.raises(WriteFailed, match="Nothing was written or dropped"):
        write(frame(cluster, ROWS - 1), "once-job", **given)
    assert_once_each(kafka, "once-job")


def test_jobs_that_cannot_be_exactly_once_are_refused_on_the_driver(cluster: SparkSession) -> None:
    rows, given = frame(cluster), {"bootstrap_servers": "127.0.0.1:1", **ONCE}
    with pytest.raises(ConfigError, match="set shards=8"):
        write(rows, "refused", job_id="x", **given)
    named: dict[str, Any] = {"job_id": "x", "shards": 2}
    for column, options in (("key", {}), ("value", named)):
        with pytest.raises(ConfigError, match="not be the same when Spark computes them again"):
            write(rows.withColumn(column, rand().cast("string")), "refused", **given, **options)


def test_the_data_source_writes_batch_jobs_once(cluster: SparkSession, kafka: str) -> None:
    options = {
        "kafka.bootstrap.servers": kafka,
        "topic": "once-saved",
        "delivery": "exactly_once",
        "jobId": "save",
    }
    with pytest.raises(PySparkException, match=r"kprod.spark.sharded\(df, 8\)"):
        frame(cluster).write.format("kprod").options(**options).mode("append").save()
    placed = sharded(frame(cluster), 3, by="key")
    for _ in range(2):
        placed.write.format("kprod").options(**options).mode("append").save()
    assert_once_each(kafka, "once-saved")
    moved = placed.repartition(2)
    with pytest.raises(PySparkException, match="rows have been moved"):
        moved.write.format("kprod").options(**{**options, "jobId": "b"}).mode("append").save()
    atomic = {**options, "topic": "atomic-saved", "delivery": "atomic"}
    del atomic["jobId"]
    frame(cluster).write.format("kprod").options(**atomic).mode("append").save()
    assert_once_each(kafka, "atomic-saved")


def test_a_writer_refuses_coalesced_partitions(cluster: SparkSession, kafka: str) -> None:
    """Each partition seemed to be a retry of the first one, and its rows were skipped."""
    writer = partition_writer("folded", bootstrap_servers=kafka, delivery="exactly_once")
    for rows in (frame(cluster), sharded(frame(cluster), 3)):
        with pytest.raises(Exception, match="coalesce"):
            rows.mapInArrow(writer, writer.schema).coalesce(1).collect()
        with pytest.raises(Exception, match="coalesce"):
            rows.rdd.mapPartitions(writer).coalesce(1).collect()


@pytest.mark.parametrize("how", ["arrow", "rdd", "foreach"])
def test_partition_writer_writes_rows_once(cluster: SparkSession, kafka: str, how: str) -> None:
    topic = f"once-{how}"
    writer = partition_writer(topic, bootstrap_servers=kafka, delivery="exactly_once", job_id=how)
    rows = sharded(frame(cluster), 3)
    run: dict[str, Callable[[], Any]] = {
        "arrow": lambda: rows.mapInArrow(writer, writer.schema).collect(),
        "rdd": lambda: rows.rdd.mapPartitions(writer).collect(),
        "foreach": lambda: rows.foreachPartition(writer),
    }
    run[how]()
    run[how]()
    assert_once_each(kafka, topic)


@pytest.mark.parametrize("on_row_error", ["fail", "skip"])
def test_a_writer_refuses_several_calls_in_one_task(
    cluster: SparkSession, kafka: str, on_row_error: Any
) -> None:
    """With ``skip``, the marker of the first batch was used for all: the rest was lost."""
    writer = partition_writer(
        f"piecemeal-{on_row_error}",
        bootstrap_servers=kafka,
        delivery="exactly_once",
        on_row_error=on_row_error,
    )

    def each(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for row in range(batch.num_rows):
                yield from writer(iter([batch.slice(row, 1)]))

    # Shuffle one task: otherwise a retry may begin with another row, and fail for that.
    rows = sharded(frame(cluster).coalesce(1), 3)
    with pytest.raises(Exception, match="Pass all rows of the task to the writer in one call"):
        rows.mapInArrow(each, writer.schema).collect()


def remove_commit(checkpoint: Path, batch: int) -> None:
    """As if the driver had died before it stored the commit of the batch."""
    for found in (checkpoint / "commits").glob(f"*{batch}*"):
        found.unlink()


@BOTH
def test_a_restarted_stream_writes_rows_once(
    cluster: SparkSession, kafka: str, tmp_path: Path, delivery: Delivery
) -> None:
    topic = f"stream-{delivery}"
    lines = Lines(cluster, tmp_path)
    checkpoint = tmp_path / "checkpoint"

    def run(shards: int = 2, checkpoint: Path = checkpoint) -> None:
        given = {"kafka.bootstrap.servers": kafka, "topic": topic, "delivery": delivery}
        pour(sharded(lines.stream(), shards), given, checkpoint)

    lines.add(100)
    lines.add(100)
    run()
    assert_once_each(kafka, topic, 200)
    remove_commit(checkpoint, 1)
    run()
    assert_once_each(kafka, topic, 200)
    remove_commit(checkpoint, 1)
    with pytest.raises(StreamingQueryException, match="started with 2 shards, and now has 3"):
        run(shards=3)
    run()
    lines.add(50)
    run(shards=3)
    assert_once_each(kafka, topic, 250)
    # A new checkpoint is another query: all batches are written again.
    other = tmp_path / "other"
    run(checkpoint=other)
    assert len(committed(kafka, topic, PARTITIONS)) == 500


@BOTH
def test_a_retried_foreach_batch_writes_rows_once(
    cluster: SparkSession, kafka: str, tmp_path: Path, delivery: Delivery
) -> None:
    topic = f"batches-{delivery}"
    lines = Lines(cluster, tmp_path)
    checkpoint = tmp_path / "checkpoint"
    results: list[WriteResult] = []
    writes = foreach_batch(
        topic,
        bootstrap_servers=kafka,
        delivery=delivery,
        shards=2,
        on_result=lambda result, _: results.append(result),
    )

    def run() -> None:
        pour(lines.stream(), writes, checkpoint)

    lines.add(100)
    run()
    remove_commit(checkpoint, 0)
    run()
    lines.add(100)
    run()
    assert_once_each(kafka, topic, 200)
    assert [(one.committed, one.already_there) for one in results] == [(2, 0), (0, 2), (2, 0)]
    query = json.loads((checkpoint / "metadata").read_text())["id"]
    assert all(f".{query}." in name for one in results for name in one.transactional_ids)


class FrameWithoutSchema:
    """A frame in a flow of a Declarative Pipeline, where Spark does not give its columns."""

    def __init__(self, frame: DataFrame) -> None:
        self._frame = frame

    def __getattr__(self, name: str) -> Any:
        if name in ("schema", "columns", "dtypes"):
            raise AnalysisException("[ATTEMPT_ANALYSIS_IN_PIPELINE_QUERY_FUNCTION] not here")
        return getattr(self._frame, name)


def test_a_frame_without_a_schema_can_be_sharded_by_named_columns(cluster: SparkSession) -> None:
    hidden: Any = FrameWithoutSchema(frame(cluster))
    columns = sharded(frame(cluster), 3, by="key").columns
    placed, named = (sharded(one, 3, by="key").select(columns) for one in (hidden, frame(cluster)))
    assert sorted(placed.collect()) == sorted(named.collect())
    with pytest.raises(ConfigError, match=r"Declarative Pipeline needs by="):
        sharded(hidden, 3)
