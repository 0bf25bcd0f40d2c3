"""A pipeline reads, changes and writes."""

from __future__ import annotations

import gc
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from kprod.admin import read_topic
from kprod.cli.spark_pipeline import Pipeline, dry_run, run_pipeline
from kprod.errors import ConfigError
from kprod.spark import SchemaError, WriteResult
from tests.support.tier import one_of

pytestmark = pytest.mark.timeout(600)


@pytest.fixture
def people(tmp_path: Path) -> Path:
    (tmp_path / "people.csv").write_text("name,age\nann,1\nbob,2\ncleo,3\n")
    return tmp_path


def values(kafka: str, topic: str) -> list[Any]:
    found = [json.loads(record.value or b"null") for _, record in read_topic(kafka, topic)]
    return sorted(found, key=lambda person: str(person["name"]))


def pipeline(people: Path, kafka: str, **fields: Any) -> Pipeline:
    described = {
        "path": str(people / "people.csv"),
        "format": "csv",
        "read_options": {"header": "true"},
        "topic": "described",
        "bootstrap_servers": kafka,
        "options": {"value_format": "json", "progress": False},
    }
    return Pipeline(**{**described, **fields})


def test_a_dry_run_shows_rows_and_reports_invalid_pipelines(
    cluster: SparkSession, people: Path, kafka: str
) -> None:
    shown = dry_run(cluster, pipeline(people, kafka, topic="dry"), rows=2)
    assert shown.columns == "struct<name:string,age:string>"
    assert shown.rows == ["{'name': 'ann', 'age': '1'}", "{'name': 'bob', 'age': '2'}"]
    with pytest.raises(SchemaError, match="no column 'value'"):
        dry_run(cluster, pipeline(people, kafka, options={"progress": False}), rows=2)
    for wrong in ({"sql": "select colour from input"}, {"path": "/nowhere"}, {"table": "none"}):
        fields: dict[str, Any] = {**({"path": None} if "table" in wrong else {}), **wrong}
        with pytest.raises(ConfigError, match=r"(colour|nowhere|none)"):
            dry_run(cluster, pipeline(people, kafka, **fields), rows=2)


@pytest.mark.parametrize("source", one_of("parquet", "json", "orc", "table", "query"))
def test_every_source_is_read(cluster: SparkSession, people: Path, kafka: str, source: str) -> None:
    frame = cluster.sql("select 'ann' name, 1 age union all select 'bob', 2")
    fields: dict[str, Any] = {"path": None, "read_options": {}, "topic": f"from-{source}"}
    if source in ("table", "query"):
        frame.createOrReplaceTempView("persons")
        fields[source] = "persons" if source == "table" else "select * from persons"
    else:
        frame.write.format(source).save(str(people / source))
        fields |= {"path": str(people / source), "format": source}
    run_pipeline(cluster, pipeline(people, kafka, **fields), lambda *_: None)
    assert values(kafka, f"from-{source}") == [{"name": "ann", "age": 1}, {"name": "bob", "age": 2}]


def test_a_stream_of_files_ends_when_all_files_are_written(
    cluster: SparkSession, people: Path, kafka: str
) -> None:
    (people / "in").mkdir()
    (people / "in" / "1.csv").write_text("dan,4\n")
    (people / "in" / "2.csv").write_text("eve,5\n")
    described = pipeline(
        people,
        kafka,
        path=str(people / "in"),
        read_options={"maxFilesPerTrigger": "1"},
        schema="name string, age int",
        stream=True,
        checkpoint=str(people / "checkpoint"),
        topic="poured",
        options={"value_format": "json"},
    )
    batches: list[int] = []

    def on_result(_: WriteResult, batch: int) -> None:
        batches.append(batch)
        results = [one for one in gc.get_objects() if isinstance(one, WriteResult) and one.shards]
        kept = [one for one in results if "poured" in one.offsets]  # not those of other tests
        assert len(kept) == 1, "the results of earlier batches pile up"

    for expected in (2, 0):  # the second run finds nothing new
        result = run_pipeline(cluster, described, on_result)
        assert (result.records, result.shards) == (expected, ())
    assert batches == [0, 1]
    assert values(kafka, "poured") == [{"name": "dan", "age": 4}, {"name": "eve", "age": 5}]
    invalid = replace(described, options={}, checkpoint=str(people / "other"))
    with pytest.raises(SchemaError, match="no column 'value'"):
        run_pipeline(cluster, invalid, on_result)
