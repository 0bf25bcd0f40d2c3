"""What a DataFrame that ``sharded`` has made goes together with, and what it does not."""

from __future__ import annotations

import sys
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession

from kprod.errors import ConfigError
from kprod.spark import partition_writer, sharded, write
from kprod.spark.data_source import batch_writer, stream_writer
from kprod.spark.partition_writer import task_writer
from kprod.spark.python_worker import TaskIdentity
from kprod.spark.shard_rows import HASH_COLUMN, SHARD_COLUMN, Layout
from kprod.spark.sharded import shard_count

ONCE: Any = {"bootstrap_servers": "127.0.0.1:1", "delivery": "exactly_once", "job_id": "j"}


@pytest.fixture(scope="module")
def frame(cluster: SparkSession) -> DataFrame:
    return cluster.range(10).selectExpr("cast(id as string) as value")


def test_shards_of_a_sharded_frame_are_not_ignored(frame: DataFrame) -> None:
    for shards in (8, 4):
        with pytest.raises(ConfigError, match=r"shards: .* already called sharded\(\)"):
            write(sharded(frame, 8), "t", shards=shards, **ONCE)


def test_a_frame_is_sharded_once(frame: DataFrame) -> None:
    with pytest.raises(ConfigError, match=r"sharded\(\) was called twice"):
        sharded(sharded(frame, 8), 4)


def test_a_sharded_frame_needs_exactly_once_delivery(
    frame: DataFrame, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its two columns are no part of a record, and none of a packed value."""
    complaint = r'sharded\(\) is for delivery="exactly_once" and "atomic"'
    rows = sharded(frame, 2)
    options = {"kafka.bootstrap.servers": "127.0.0.1:1", "topic": "t"}
    packs: Any = {"bootstrap_servers": "127.0.0.1:1", "value_format": "json"}
    with pytest.raises(ConfigError, match=complaint):
        write(rows, "t", **packs)
    with pytest.raises(ConfigError, match=complaint):
        batch_writer(options, rows.schema, overwrite=False)
    with pytest.raises(ConfigError, match=complaint):
        stream_writer(options, rows.schema)
    module = sys.modules[task_writer.__module__]
    task = TaskIdentity(application="a", stage=1, partition=0, attempt=0)
    monkeypatch.setattr(module, "this_task", lambda: task)
    row = {"id": 1, SHARD_COLUMN: Layout(0, 2).packed, HASH_COLUMN: 7}
    for items in ([row], [pa.RecordBatch.from_pylist([row])]):
        with pytest.raises(ConfigError, match=complaint):
            partition_writer("t", **packs)(iter(items))


def test_a_frame_says_how_many_shards_it_has(frame: DataFrame) -> None:
    """A rate limit is divided by them, where nothing else limits the tasks at the same time."""
    assert shard_count(sharded(frame, 8)) == 8
    assert shard_count(frame) is None
    assert shard_count(sharded(frame, 8).selectExpr("value as v", "*")) == 8
