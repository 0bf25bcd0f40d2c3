"""Tables ``USING kprod``: each way to write works, or is refused without writing a row."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame, SparkSession

from tests.spark.driver_process import every_row, values
from tests.spark.lines import Lines

ROWS = 5
ALL = every_row(ROWS)
NO_OPTIONS = r'Instead of INSERT INTO, use df\.write\.format\("kprod"\)'
OVERWRITTEN = "a topic cannot be overwritten"


def frame(spark: SparkSession) -> DataFrame:
    return spark.range(0, ROWS, 1, 2).selectExpr("concat('row ', id) as value")


def options(kafka: str, topic: str) -> dict[str, str]:
    return {"kafka.bootstrap.servers": kafka, "topic": topic}


def save_as_table(rows: DataFrame, given: dict[str, str], how: str) -> None:
    mode = {"create": "errorifexists", "append": "append", "replace": "overwrite"}[how]
    rows.write.format("kprod").options(**given).mode(mode).saveAsTable("sql_written")


def write_to(rows: DataFrame, given: dict[str, str], how: str) -> None:
    writer = rows.writeTo("sql_written").options(**given)
    if how == "append":
        writer.append()
    else:
        getattr(writer.using("kprod"), {"replace": "createOrReplace"}.get(how, how))()


@pytest.mark.parametrize("write", [save_as_table, write_to])
def test_a_table_is_appended_to_and_never_replaced(
    cluster: SparkSession, kafka: str, write: Callable[[DataFrame, dict[str, str], str], None]
) -> None:
    given = options(kafka, f"sql-{write.__name__}")
    try:
        write(frame(cluster), given, "create")
        assert values(kafka, given["topic"]) == ALL
        write(frame(cluster), given, "append")
        with pytest.raises(AnalysisException, match=OVERWRITTEN):
            write(frame(cluster), given, "replace")
        assert values(kafka, given["topic"]) == ALL + ALL
    finally:
        cluster.sql("DROP TABLE IF EXISTS sql_written")


@pytest.mark.full
def test_statements_without_options_are_refused(cluster: SparkSession, kafka: str) -> None:
    """Spark accepts ``CREATE TABLE`` itself. Writing and reading the table is refused."""
    given = f"OPTIONS ('kafka.bootstrap.servers' '{kafka}', topic 'sql-refused')"
    frame(cluster).createOrReplaceTempView("sql_rows")
    written = frame(cluster).write.format("kprod").options(**options(kafka, "sql-refused"))
    written.mode("append").save()
    refused = (
        "INSERT INTO sql_refused SELECT * FROM sql_rows",
        f"CREATE TABLE sql_selected USING kprod {given} AS SELECT * FROM sql_rows",
    )
    try:
        cluster.sql(f"CREATE TABLE sql_refused (value string) USING kprod {given}")
        for statement in refused:
            with pytest.raises(AnalysisException, match=NO_OPTIONS):
                cluster.sql(statement)
        with pytest.raises(AnalysisException, match=NO_OPTIONS):
            frame(cluster).write.insertInto("sql_refused")
        with pytest.raises(AnalysisException, match=r"kafka\.bootstrap\.servers"):
            cluster.sql("SELECT * FROM sql_refused").collect()
        assert not cluster.catalog.tableExists("sql_selected")
        assert values(kafka, "sql-refused") == ALL
    finally:
        for name in ("sql_refused", "sql_selected"):
            cluster.sql(f"DROP TABLE IF EXISTS {name}")


def test_a_stream_into_a_table_writes_its_rows(
    cluster: SparkSession, kafka: str, tmp_path: Path
) -> None:
    lines = Lines(cluster, tmp_path)
    lines.add(ROWS)
    stream = lines.stream().writeStream.format("kprod").trigger(availableNow=True)
    stream = stream.options(**options(kafka, "sql-stream"))
    try:
        query = stream.option("checkpointLocation", str(tmp_path / "c")).toTable("sql_stream")
        query.awaitTermination()
        assert values(kafka, "sql-stream") == ALL
    finally:
        cluster.sql("DROP TABLE IF EXISTS sql_stream")
