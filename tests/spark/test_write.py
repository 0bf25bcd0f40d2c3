"""``write``, ``format("kprod")`` and ``foreach_batch`` on a cluster."""

from __future__ import annotations

import os
import sys
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from itertools import repeat
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark import TaskContext
from pyspark.errors import AnalysisException, StreamingQueryException
from pyspark.sql import DataFrame, SparkSession

from kprod.admin import read_topic
from kprod.broker import EmbeddedBroker
from kprod.errors import BrokerError, ConfigError, KprodTimeoutError
from kprod.spark import (
    OffsetRange,
    SchemaError,
    WriteFailed,
    WriteResult,
    foreach_batch,
    partition_writer,
    sharded,
    write,
)
from kprod.spark.data_source import batch_writer, stream_writer
from kprod.spark.job_tasks import JobTask, call_in_task
from kprod.spark.partition_writer import task_writer
from kprod.spark.python_worker import TaskIdentity
from kprod.spark.shard_rows import HASH_COLUMN, SHARD_COLUMN, Layout
from kprod.spark.sharded import key_partitions, numbers_by_task, shard_count, spark_hash
from kprod.spark.spark_job import LONGEST_CANCEL, collect
from kprod_ext import partition_for_key
from tests.spark.driver_process import every_row, values
from tests.spark.lines import Lines, pour
from tests.support.ports import free_port

pytestmark = pytest.mark.timeout(600)

ROWS = 3_000
TASKS = 4


def keyed(spark: SparkSession) -> DataFrame:
    return spark.range(0, ROWS, 1, TASKS).selectExpr(
        "cast(id as string) as key", "concat('row ', id) as value"
    )


def once_each(kafka: str, topic: str, rows: int = ROWS) -> bool:
    return values(kafka, topic) == every_row(rows)


def partition_by_key(kafka: str, topic: str) -> dict[bytes | None, int]:
    return {record.key: partition for partition, record in read_topic(kafka, topic)}


def save(frame: DataFrame, kafka: str, mode: str = "append", **options: str) -> None:
    writer = frame.write.format("kprod").option("kafka.bootstrap.servers", kafka)
    writer.options(**options).mode(mode).save()


def assert_ranges_equal_the_log(kafka: str, topic: str, offsets: Mapping[int, OffsetRange]) -> None:
    ends = Counter(partition for partition, _ in read_topic(kafka, topic))
    ranges = {number: (found.first, found.last, found.records) for number, found in offsets.items()}
    assert ranges == {number: (0, end - 1, end) for number, end in ends.items()}


def test_the_result_of_a_write_equals_the_stored_records(cluster: SparkSession, kafka: str) -> None:
    result = write(keyed(cluster), "whole-frame", bootstrap_servers=kafka)
    assert once_each(kafka, "whole-frame")
    assert (result.records, result.skipped, result.dead_letters) == (ROWS, 0, 0)
    assert_ranges_equal_the_log(kafka, "whole-frame", result.offsets["whole-frame"])
    assert [shard.task for shard in result.shards] == list(range(TASKS))
    assert result.attempts == TASKS
    assert "3,000 records" in str(result)
    assert "<td>whole-frame</td>" in result._repr_html_()
    summary = write(keyed(cluster), "whole-frame", bootstrap_servers=kafka, results="summary")
    assert (summary.records, summary.shards) == (ROWS, ())
    assert min(found.first for found in summary.offsets["whole-frame"].values()) > 0


def test_jobs_have_a_description_in_the_spark_ui(cluster: SparkSession, kafka: str) -> None:
    write(keyed(cluster), "described", bootstrap_servers=kafka)
    context: Any = cluster.sparkContext
    context._jsc.sc().listenerBus().waitUntilEmpty()
    jobs = context._jsc.sc().statusStore().jobsList(None)
    described = [jobs.apply(number).description() for number in range(jobs.size())]
    assert "kprod: write to described" in [one.get() for one in described if one.isDefined()]


def test_an_unreachable_broker_is_reported_in_one_line(cluster: SparkSession) -> None:
    unreachable = f"127.0.0.1:{free_port()}"
    with pytest.raises(WriteFailed, match=f"cannot connect to {unreachable}") as raised:
        write(keyed(cluster), "unreachable", bootstrap_servers=unreachable, max_block_ms=500)
    assert "\n" not in str(raised.value)


def test_repartition_kafka_uses_one_task_per_partition(cluster: SparkSession, kafka: str) -> None:
    write(keyed(cluster), "chosen", bootstrap_servers=kafka)
    result = write(keyed(cluster), "gathered", bootstrap_servers=kafka, repartition="kafka")
    assert once_each(kafka, "gathered")
    writers = [found.partition for shard in result.shards for found in shard.offsets]
    assert sorted(writers) == [0, 1, 2]
    assert partition_by_key(kafka, "gathered") == partition_by_key(kafka, "chosen")


@pytest.mark.parametrize("arrow", [True, False])
def test_workers_choose_the_same_partitions_as_the_producer(
    cluster: SparkSession, arrow: bool
) -> None:
    keys = [bytes(range(200, 200 + length)) for length in range(12)] + [b"\x80\xff\x00\x7f" * 9]
    rows = [("", b""), *[(f"ключ {key.hex()}", key) for key in keys]]
    frame = cluster.createDataFrame([(None, None), *rows], "text string, bytes binary")
    chosen = key_partitions(7, arrow=arrow)
    columns = [chosen(frame[name]).alias(name) for name in ("text", "bytes")]
    assert [tuple(row) for row in frame.select(*columns).collect()] == [
        (-1, -1),
        *[(partition_for_key(text.encode(), 7), partition_for_key(key, 7)) for text, key in rows],
    ]


def test_numbers_by_task_hash_to_the_intended_tasks(cluster: SparkSession) -> None:
    numbers = [*numbers_by_task(12), 2**31 - 1]
    listed = ", ".join(map(str, numbers))
    row = cluster.sql(f"select transform(array({listed}), x -> hash(x)) as hashes").collect()[0]
    assert row["hashes"] == [spark_hash(number) for number in numbers]
    assert [found % 12 for found in row["hashes"][:-1]] == list(range(12))


def test_a_worker_is_reused_after_a_task_without_rows(cluster: SparkSession) -> None:
    """PySpark ends a worker whose task has not read all of its input."""
    processes = [call_in_task(cluster, "process id", os.getpid) for _ in range(3)]
    assert all(Path(f"/proc/{process}").exists() for process in processes)


@pytest.mark.full
def test_a_retried_task_loses_no_records(cluster: SparkSession, kafka: str) -> None:
    def break_once(rows: Iterable[str]) -> Iterator[str]:
        context = TaskContext.get()
        assert context is not None
        for number, row in enumerate(rows):
            if number == 600 and context.attemptNumber() == 0:
                raise RuntimeError("the first attempt breaks here")
            yield row

    rows = cluster.sparkContext.parallelize([f"row {n}" for n in range(ROWS)], TASKS)
    writer = partition_writer("retried", bootstrap_servers=kafka)
    reports = rows.mapPartitions(break_once).mapPartitions(writer).collect()
    assert [report["attempt"] for report in reports] == [1] * TASKS
    assert sum(report["records"] for report in reports) == ROWS
    stored = {record.value for _, record in read_topic(kafka, "retried")}
    assert stored == {b"row %d" % row for row in range(ROWS)}


def test_rows_without_a_key_are_spread_and_given_partitions_kept(
    cluster: SparkSession, kafka: str
) -> None:
    frame = cluster.range(300).selectExpr(
        "cast(id as string) as value", "if(id < 30, 2, null) as partition"
    )
    result = write(frame, "spread", bootstrap_servers=kafka, repartition="kafka")
    assert {n: found.records > 30 for n, found in result.offsets["spread"].items()} == {
        0: True,
        1: True,
        2: True,
    }
    for partition, record in read_topic(kafka, "spread"):
        assert int(record.value or b"") >= 30 or partition == 2


@pytest.mark.parametrize(
    ("topic", "value"),
    [
        ("spread-structs", "named_struct('n', id)"),
        ("spread-maps", "map('n', id)"),
        ("spread-variants", "parse_json(cast(id as string))"),
    ],
)
def test_rows_with_unhashable_columns_are_spread_too(
    cluster: SparkSession, kafka: str, topic: str, value: str
) -> None:
    """Also when the hashable columns are equal in all rows."""
    frame = cluster.range(300).selectExpr(f"{value} as value", "'not used' as topic")
    options: Any = {"value_format": "json", "repartition": "kafka"}
    result = write(frame, topic, bootstrap_servers=kafka, **options)
    assert all(found.records > 30 for found in result.offsets[topic].values())
    assert len(result.offsets[topic]) == 3


def test_repartition_kafka_does_not_change_the_values(cluster: SparkSession, kafka: str) -> None:
    """The chosen partition does not overwrite a column of the values."""
    keys = "id", "cast(id as string) as k", "if(id < 3, null, 1) as p"
    frame = cluster.range(6).selectExpr(*keys, "'a column' as partition")
    options: Any = {"value_format": "json", "columns": {"key": "k", "partition": "p"}}
    written = {}
    cases: Any = (("as-they-are", None), ("as-gathered", "kafka"))
    for topic, repartition in cases:
        write(frame, topic, bootstrap_servers=kafka, repartition=repartition, **options)
        found = list(read_topic(kafka, topic))
        written[topic] = sorted(record.value or b"" for _, record in found)
        assert [partition for partition, record in found if b'"p"' in (record.value or b"")] == [
            1
        ] * 3
    assert written["as-gathered"] == written["as-they-are"]
    assert written["as-gathered"][0] == b'{"id":0,"k":"0","partition":"a column"}'
    columns: Any = {"partition": "p", "value": "k"}
    few = frame.select("k", "p")
    result = write(few, "named", bootstrap_servers=kafka, repartition="kafka", columns=columns)
    assert result.records == 6


@pytest.mark.parametrize("ansi", ["true", "false"])
def test_a_partition_number_beyond_32_bits_is_an_invalid_row(
    cluster: SparkSession, kafka: str, ansi: str
) -> None:
    """The cast to an int made it partition 1, or failed the job despite ``on_row_error``."""
    number = f"cast({2**32 + 1} as bigint)"
    frame = cluster.sql(f"select 'v' as value, if(id = 0, {number}, 1) as partition from range(3)")
    before = cluster.conf.get("spark.sql.ansi.enabled")
    cluster.conf.set("spark.sql.ansi.enabled", ansi)
    try:
        options: dict[str, Any] = {"repartition": "kafka", "on_row_error": "skip"}
        result = write(frame, f"beyond-{ansi}", bootstrap_servers=kafka, **options)
    finally:
        cluster.conf.set("spark.sql.ansi.enabled", before or "true")
    assert (result.records, result.skipped) == (2, 1)


def test_a_rate_limit_is_shared_by_all_tasks(cluster: SparkSession, kafka: str) -> None:
    result = write(keyed(cluster), "slowly", bootstrap_servers=kafka, max_records_per_second=6_000)
    assert once_each(kafka, "slowly")
    # Two tasks of 750 rows run at once. The limiter waits after each piece.
    assert all(shard.seconds >= 0.2 for shard in result.shards)


def test_a_permanent_error_fails_without_retries(cluster: SparkSession, kafka: str) -> None:
    frame = cluster.range(0, 400, 1, 8).selectExpr("if(id = 0, null, 'some') topic", "'v' value")
    with pytest.raises(WriteFailed, match="has no topic") as raised:
        write(frame, bootstrap_servers=kafka)
    assert raised.value.task == 0
    assert all(shard.attempt == 0 for shard in raised.value.result.shards)


def test_a_missing_topic_fails_without_retries(cluster: SparkSession) -> None:
    with EmbeddedBroker(auto_create_topics=False) as broker, pytest.raises(WriteFailed) as raised:
        write(
            keyed(cluster),
            "missing",
            bootstrap_servers=broker.bootstrap_servers,
            max_block_ms=1_500,
        )
    cause = raised.value.__cause__
    assert isinstance(cause.__cause__ if cause else None, BrokerError)


def test_the_next_tasks_of_a_process_fail_at_once_with_the_same_error() -> None:
    """The input is read to its end, unless that takes longer than the first failure."""
    batch = pa.RecordBatch.from_pydict({"value": [b"v"]})
    with EmbeddedBroker(auto_create_topics=False) as broker:
        servers = broker.bootstrap_servers
        writer = task_writer("missing", bootstrap_servers=servers, max_block_ms=500)
        task = JobTask(writer=writer, job="fails")
        started = time.monotonic()
        for items in (iter([batch] * 3), iter([batch] * 3), repeat(batch)):
            outcome = task.run(items)
            assert isinstance(outcome.failure, KprodTimeoutError)
            assert isinstance(items, repeat) or not list(items)
        assert time.monotonic() - started < 1.4, "0.5 s for the first, and for the endless input"


def test_record_parts_are_read_from_columns(cluster: SparkSession, kafka: str) -> None:
    headers = [[("a", b"b")], [("c", b"d"), ("e", b"f")], [("g", b"h"), ("g", b"i")], None]
    rows = [("parts", str(number), given) for number, given in enumerate(headers)]
    columns = "topic string, value string, headers array<struct<key: string, value: binary>>"
    frame = cluster.createDataFrame(rows, columns).selectExpr("*", "timestamp_millis(17) timestamp")
    save(frame, kafka)
    found = [record for _, record in read_topic(kafka, "parts")]
    assert {record.value: record.headers for record in found} == {
        value.encode(): tuple(given or ()) for _, value, given in rows
    }
    assert {record.timestamp for record in found} == {17}


def test_a_partition_column_is_used_unless_null(cluster: SparkSession, kafka: str) -> None:
    frame = cluster.range(5).selectExpr("cast(id as string) key", "cast(id as string) value")
    crc32 = {"kafka.partitioner": "crc32"}
    save(frame, kafka, topic="by-key")
    save(frame, kafka, topic="by-crc32", **crc32)
    save(frame.selectExpr("*", "2 as partition"), kafka, topic="by-column", **crc32)
    save(frame.selectExpr("*", "cast(null as int) as partition"), kafka, topic="by-null")
    assert len(set(partition_by_key(kafka, "by-key").values())) > 1
    assert partition_by_key(kafka, "by-crc32") != partition_by_key(kafka, "by-key")
    assert set(partition_by_key(kafka, "by-column").values()) == {2}
    assert partition_by_key(kafka, "by-null") == partition_by_key(kafka, "by-key")


@pytest.mark.parametrize("mode", ["overwrite", "ignore", "errorifexists"])
def test_the_only_save_mode_is_append(cluster: SparkSession, kafka: str, mode: str) -> None:
    with pytest.raises(Exception, match=f"(?i)cannot be overwritten|{mode}"):
        save(cluster.sql("select 'v' value"), kafka, mode, topic="modes")


def test_an_invalid_row_fails_a_save_without_retries(cluster: SparkSession, kafka: str) -> None:
    frame = cluster.sql("select 'v' value, 'poisoned' topic, -1 partition")
    with pytest.raises(Exception, match="failed permanently: PartitionError"):
        save(frame, kafka)


@pytest.mark.parametrize(
    ("column", "options", "complaint"),
    [
        ("value", {}, "no topic"),
        ("value as key", {"topic": "t"}, "no column 'value'"),
        ("value", {"topic": "missing", "kafka.max.block.ms": "1500"}, "missing"),
    ],
)
def test_invalid_streams_are_refused(
    cluster: SparkSession, tmp_path: Path, column: str, options: dict[str, str], complaint: str
) -> None:
    """Spark may raise when the query starts, or when it plans the first micro-batch."""
    lines = Lines(cluster, tmp_path)
    lines.add(1)
    with EmbeddedBroker(auto_create_topics=False) as broker:
        given = {"kafka.bootstrap.servers": broker.bootstrap_servers, **options}
        with pytest.raises(Exception, match=complaint):
            pour(lines.stream().selectExpr(column), given, tmp_path / "checkpoint")


def counted(spark: SparkSession, folder: Path, *files: int) -> DataFrame:
    """A stream with an aggregation, a file for each micro-batch."""
    lines = Lines(spark, folder)
    for rows in files:
        lines.add(rows)
    return lines.stream().groupBy("value").count().selectExpr("value")


def test_the_data_source_refuses_output_mode_update(
    cluster: SparkSession, kafka: str, tmp_path: Path
) -> None:
    given = {"kafka.bootstrap.servers": kafka, "topic": "updated"}
    with pytest.raises((AnalysisException, StreamingQueryException), match=r"(?i)update"):
        pour(counted(cluster, tmp_path, 5), given, tmp_path / "no", "update")


def test_output_mode_complete_writes_the_whole_result_each_time(
    cluster: SparkSession, kafka: str, tmp_path: Path
) -> None:
    given = {"kafka.bootstrap.servers": kafka, "topic": "completed"}
    pour(counted(cluster, tmp_path, 5, 2), given, tmp_path / "checkpoint", "complete")
    assert values(kafka, "completed") == every_row(5) + every_row(7)


@pytest.mark.parametrize("mode", ["update", "complete"])
def test_foreach_batch_supports_every_output_mode(
    cluster: SparkSession, kafka: str, tmp_path: Path, mode: str
) -> None:
    seen: list[tuple[int, int]] = []

    def on_result(result: WriteResult, batch: int) -> None:
        seen.append((batch, result.records))

    writes = foreach_batch(mode, bootstrap_servers=kafka, on_result=on_result)
    pour(counted(cluster, tmp_path, 5), writes, tmp_path / "checkpoint", mode)
    assert once_each(kafka, mode, 5)
    assert seen == [(0, 5)]


def test_placeholders_are_resolved_on_the_executors(
    cluster: SparkSession, kafka: str, tmp_path: Path
) -> None:
    (tmp_path / "brokers").write_text(f"# where\nservers = {kafka}\n")
    frame = keyed(cluster)
    write(frame, "elsewhere", bootstrap_servers=f"${{file:{tmp_path}/brokers:servers}}")
    assert once_each(kafka, "elsewhere")
    with pytest.raises(WriteFailed, match="environment variable KPROD_NOT_SET is not set"):
        write(frame, "elsewhere", bootstrap_servers=kafka, client_id="${env:KPROD_NOT_SET}")


# DataFrames made by ``sharded`` -------------------------------------------------------------------


ONCE: Any = {"bootstrap_servers": "127.0.0.1:1", "delivery": "exactly_once", "job_id": "j"}


@pytest.fixture(scope="module")
def frame(cluster: SparkSession) -> DataFrame:
    return cluster.range(10).selectExpr("cast(id as string) as value")


def test_a_sharded_frame_cannot_be_sharded_again(frame: DataFrame) -> None:
    placed = sharded(frame, 8)
    with pytest.raises(ConfigError, match=r"shards: .* already called sharded\(\)"):
        write(placed, "t", shards=8, **ONCE)
    with pytest.raises(ConfigError, match=r"repartition: sharded\(\) has placed the rows"):
        write(placed, "t", repartition="kafka", **ONCE)
    with pytest.raises(ConfigError, match=r"sharded\(\) was called twice"):
        sharded(placed, 4)


def test_an_unknown_shard_column_is_reported_under_the_callers_option(frame: DataFrame) -> None:
    with pytest.raises(SchemaError, match=r"(?<!shard_)by: expected columns among"):
        sharded(frame, 8, by="x")
    with pytest.raises(SchemaError, match="shard_by: expected columns among"):
        write(frame, "t", shards=8, shard_by="x", **ONCE)


def test_a_job_is_cancelled_at_its_timeout(cluster: SparkSession) -> None:
    slow = cluster.range(0, 2, 1, 2).selectExpr("reflect('java.lang.Thread', 'sleep', 60000L)")
    began = time.monotonic()
    with pytest.raises(TimeoutError, match="slow, but sure: not done after 1 s"):
        collect(slow, "slow, but sure", False, longest=1.0)
    assert time.monotonic() - began < LONGEST_CANCEL
    context: Any = cluster.sparkContext
    context._jsc.sc().listenerBus().waitUntilEmpty()
    assert not context.statusTracker().getActiveJobsIds()


def test_a_sharded_frame_needs_exactly_once_delivery(
    frame: DataFrame, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its two extra columns belong to no record and no value."""
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


def test_shard_count_finds_the_number_of_shards_of_a_frame(frame: DataFrame) -> None:
    """A rate limit is divided by it when the number of parallel tasks is unknown."""
    assert shard_count(sharded(frame, 8)) == 8
    assert shard_count(frame) is None
    assert shard_count(sharded(frame, 8).selectExpr("value as v", "*")) == 8
