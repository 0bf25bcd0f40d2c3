"""``delivery="atomic"`` from every surface that has a driver, judged by another consumer."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import PySparkException, StreamingQueryException
from pyspark.sql import SparkSession

from kprod.admin import open_transactions
from kprod.cli.spark_pipeline import Pipeline, run_pipeline
from kprod.errors import ConfigError
from kprod.spark import WriteFailed, foreach_batch, partition_writer, sharded, write
from tests.spark.exactly_once.test_surfaces import (
    PARTITIONS,
    ROWS,
    TASKS,
    Lines,
    assert_once_each,
    forget_commit,
    frame,
)
from tests.support.committed_records import committed

pytestmark = [pytest.mark.full, pytest.mark.timeout(600)]

ATOMIC: dict[str, Any] = {"delivery": "atomic", "progress": False}


class RefusesRow:
    """A serializer that fails every attempt at one row."""

    def __init__(self, row: str) -> None:
        self._row = row

    def __call__(self, value: Any) -> bytes:
        if value == self._row:
            raise RuntimeError("this row is refused")
        return str(value).encode()


def test_a_frame_is_there_as_a_whole_or_not_at_all(cluster: SparkSession, kafka: str) -> None:
    given = {"bootstrap_servers": kafka, "value_serializer": RefusesRow("row 350"), **ATOMIC}
    with pytest.raises(WriteFailed, match="is refused; the transactions of the other tasks"):
        write(frame(cluster), "atomic-frame", **given)
    assert committed(kafka, "atomic-frame", PARTITIONS) == []
    assert open_transactions(kafka) == []
    result = write(frame(cluster), "atomic-frame", bootstrap_servers=kafka, **ATOMIC)
    assert_once_each(kafka, "atomic-frame")
    assert (result.records, result.committed, result.already_there) == (ROWS, TASKS, 0)
    assert all(shard.prepared is None for shard in result.shards)


def test_what_has_no_driver_is_refused(kafka: str) -> None:
    with pytest.raises(ConfigError, match="partition_writer runs in tasks only"):
        partition_writer("t", bootstrap_servers=kafka, delivery="atomic")


def test_the_data_source_in_batches(cluster: SparkSession, kafka: str) -> None:
    options = {"kafka.bootstrap.servers": kafka, "topic": "atomic-saved", "delivery": "atomic"}
    frame(cluster).write.format("kprod").options(**options).mode("append").save()
    assert_once_each(kafka, "atomic-saved")
    bad = frame(cluster).selectExpr("key", "if(key = '390', null, value) as topic", "value")
    with pytest.raises(PySparkException):
        bad.write.format("kprod").options(
            **{**options, "topic": "atomic-bad", "columns.value": "missing"}
        ).mode("append").save()
    assert open_transactions(kafka) == []


def test_a_stream_that_is_started_again(cluster: SparkSession, kafka: str, tmp_path: Path) -> None:
    lines = Lines(cluster, tmp_path)
    checkpoint = tmp_path / "checkpoint"

    def run(shards: int = 2) -> None:
        query = (
            sharded(lines.stream(), shards)
            .writeStream.format("kprod")
            .option("kafka.bootstrap.servers", kafka)
            .option("topic", "atomic-stream")
            .option("delivery", "atomic")
            .option("checkpointLocation", str(checkpoint))
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination()

    lines.add(100)
    lines.add(100)
    run()
    assert_once_each(kafka, "atomic-stream", 200)
    forget_commit(checkpoint, 1)
    run()
    assert_once_each(kafka, "atomic-stream", 200)
    forget_commit(checkpoint, 1)
    with pytest.raises(StreamingQueryException, match="started with 2 shards, and now has 3"):
        run(shards=3)
    lines.add(50)
    run()
    assert_once_each(kafka, "atomic-stream", 250)


def test_foreach_batch_and_a_pipeline(cluster: SparkSession, kafka: str, tmp_path: Path) -> None:
    lines = Lines(cluster, tmp_path)
    lines.add(100)
    writes = foreach_batch("atomic-batches", bootstrap_servers=kafka, delivery="atomic", shards=2)
    stream = lines.stream().writeStream.foreachBatch(writes)
    stream = stream.option("checkpointLocation", str(tmp_path / "a")).trigger(availableNow=True)
    stream.start().awaitTermination()
    assert_once_each(kafka, "atomic-batches", 100)
    pipeline = Pipeline(
        topic="atomic-pipeline",
        bootstrap_servers=kafka,
        path=str(lines.folder),
        format="text",
        stream=True,
        checkpoint=str(tmp_path / "b"),
        options={"delivery": "atomic", "shards": 2},
    )
    result = run_pipeline(cluster, pipeline, lambda *_: None)
    assert_once_each(kafka, "atomic-pipeline", 100)
    assert result.committed == 2
