"""Plans whose rows may differ after a restart, and micro-batches in the user's threads."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.functions import asc, current_timestamp, expr, first, lit, rand, udf

from kprod.admin import open_transactions
from kprod.errors import ConfigError
from kprod.spark import foreach_batch, sharded, write
from kprod.spark.repeatable import check_repeatable
from tests.spark.exactly_once.test_surfaces import ONCE, PARTITIONS, ROWS, frame
from tests.spark.lines import Lines, pour
from tests.support.committed_records import committed

pytestmark = [pytest.mark.full, pytest.mark.timeout(1_200)]

Plan = Callable[[DataFrame], DataFrame]


def above(rows: DataFrame, least: DataFrame) -> DataFrame:
    return rows.where(rows.value >= least.scalar())


REFUSED: dict[str, Plan] = {
    "rand": lambda rows: rows.withColumn("value", rand().cast("string")),
    "uuid": lambda rows: rows.withColumn("value", expr("uuid()")),
    "clock": lambda rows: rows.withColumn("value", current_timestamp().cast("string")),
    "filter": lambda rows: rows.where(rand() < 0.5),
    "limit": lambda rows: rows.limit(5),
    "offset": lambda rows: rows.offset(5),
    "limit in a subquery": lambda rows: above(rows, rows.select("value").limit(1)),
    "first() in a subquery": lambda rows: above(rows, rows.select(first("value"))),
    "rand in a subquery": lambda rows: above(
        rows, rows.select(rand().cast("string").alias("r")).agg({"r": "max"})
    ),
    "limit of a local order": lambda rows: rows.sortWithinPartitions("key").limit(5),
    "first": lambda rows: rows.groupBy("key").agg(first("value").alias("value")),
    "list": lambda rows: rows.groupBy("key").agg(expr("cast(collect_list(value) as string) value")),
    "duplicates": lambda rows: rows.dropDuplicates(["key"]),
    "udf": lambda rows: rows.withColumn(
        "value", udf(lambda text: text, "string").asNondeterministic()("value")
    ),
}
ACCEPTED: dict[str, Plan] = {
    "plain": lambda rows: rows,
    "limit of an order": lambda rows: rows.orderBy(asc("key")).select("key", "value").limit(5),
    "offset of an order": lambda rows: rows.orderBy(asc("key")).offset(5).limit(5),
    "maximum in a subquery": lambda rows: above(rows, rows.selectExpr("max(value)")),
    "maximum": lambda rows: rows.groupBy("key").agg({"value": "max"}).toDF("key", "value"),
    "distinct": lambda rows: rows.distinct(),
    "all duplicates": lambda rows: rows.dropDuplicates(),
}
ACCEPTED_BY_KEY = {
    name: REFUSED[name] for name in ("rand", "uuid", "clock", "first", "list", "duplicates", "udf")
}
"""Their keys, and the number of rows of each key, do not change."""
NOT_THE_SAME = "may not be the same when Spark computes them again"


def test_plans_with_unrepeatable_rows_are_refused(cluster: SparkSession) -> None:
    rows = frame(cluster)
    for name, plan in REFUSED.items():
        for by in (None, "key") if name not in ACCEPTED_BY_KEY else (None,):
            with pytest.raises(ConfigError, match=NOT_THE_SAME):
                pytest.fail(f"{name} was accepted: {sharded(plan(rows), 2, by=by)}")
    for plan in ACCEPTED.values():
        sharded(plan(rows), 2)
    for plan in (*ACCEPTED.values(), *ACCEPTED_BY_KEY.values()):
        sharded(plan(rows), 2, by="key")
    random_key = rows.withColumn("key", rand().cast("string"))
    with pytest.raises(ConfigError, match=NOT_THE_SAME):
        sharded(random_key, 2, by=["key"])


class OfAnotherSpark:
    """A DataFrame whose plan has none of the methods that kprod calls."""

    isStreaming = False
    _jdf = object()


def test_an_unknown_kind_of_plan_is_a_warning(caplog: pytest.LogCaptureFixture) -> None:
    frame: Any = OfAnotherSpark()
    check_repeatable(frame, None)
    assert "cannot check whether the rows of the query are repeatable" in caplog.text


@pytest.mark.parametrize("name", ["rand", "uuid", "limit", "duplicates"])
def test_queries_with_unrepeatable_rows_are_refused(
    cluster: SparkSession, kafka: str, tmp_path: Path, name: str
) -> None:
    """``foreachBatch`` gets an RDD without a plan."""
    lines = Lines(cluster, tmp_path)
    lines.add(10)
    stream = REFUSED[name](lines.stream().select(lit("k").alias("key"), "value"))
    writes = foreach_batch("not-again", bootstrap_servers=kafka, delivery="exactly_once", shards=2)
    with pytest.raises(StreamingQueryException, match=NOT_THE_SAME):
        pour(stream, writes, tmp_path / "checkpoint")


def test_a_query_may_use_the_clock(cluster: SparkSession, kafka: str, tmp_path: Path) -> None:
    """A repeated micro-batch has the same time."""
    lines = Lines(cluster, tmp_path)
    lines.add(10)
    writes = foreach_batch("timed", bootstrap_servers=kafka, delivery="exactly_once", shards=2)
    timed = REFUSED["clock"](lines.stream())
    assert sharded(timed, 2).columns == ["value", "kprod_shard", "kprod_shard_hash"]
    pour(timed, writes, tmp_path / "checkpoint")
    assert len(committed(kafka, "timed", PARTITIONS)) == 10


def test_a_job_without_an_id_may_use_the_clock(cluster: SparkSession, kafka: str) -> None:
    """All tasks of a job have the same time, also when they run again."""
    write(REFUSED["clock"](frame(cluster)), "timed-job", bootstrap_servers=kafka, **ONCE)
    stored = committed(kafka, "timed-job", PARTITIONS)
    assert len(stored) == ROWS
    assert len(set(stored)) == 1


def in_thread(function: Callable[[DataFrame, int], Any]) -> Callable[[DataFrame, int], Any]:
    def call(batch: DataFrame, number: int) -> Any:
        with ThreadPoolExecutor(1) as thread:
            return thread.submit(function, batch, number).result()

    return call


def test_write_in_a_micro_batch_needs_a_name(
    cluster: SparkSession, kafka: str, tmp_path: Path
) -> None:
    """Also in a thread, which does not know the query and batch."""
    lines = Lines(cluster, tmp_path)
    lines.add(10)
    given: dict[str, Any] = {"bootstrap_servers": kafka, **ONCE}

    def without_name(delivery: str) -> Callable[[DataFrame, int], Any]:
        options = {**given, "delivery": delivery}
        return lambda batch, _: write(batch.select("value"), "in-thread", **options)

    once, atomic = without_name("exactly_once"), without_name("atomic")
    for function in (once, atomic, in_thread(once)):
        with pytest.raises(StreamingQueryException, match="need a name for a micro-batch"):
            pour(lines.stream(), function, tmp_path / "without name")
    assert open_transactions(kafka) == []
    names: list[str] = []

    def named(batch: DataFrame, _: int) -> None:
        result = write(batch, "in-thread", job_id="mine", shards=2, **given)
        names.extend(result.transactional_ids)

    writes = foreach_batch("of-function", bootstrap_servers=kafka, shards=2, **ONCE)
    for function, topic in ((named, "in-thread"), (writes, "of-function")):
        folder = tmp_path / topic
        pour(lines.stream(), in_thread(function), folder)
        (folder / "commits" / "0").unlink()
        (folder / "commits" / ".0.crc").unlink(missing_ok=True)
        pour(lines.stream(), in_thread(function), folder)
        assert len(committed(kafka, topic, PARTITIONS)) == 10, topic
    assert len(set(names)) == 2, "both times by the name of the query"
