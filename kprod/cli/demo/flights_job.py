"""The Spark job of the demo, run as a process: ``python -m kprod.cli.demo.flights_job``."""

from __future__ import annotations

import argparse
import json
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from kprod.cli.child_process import when_parent_ends
from kprod.cli.demo.flights import NOT_AVAILABLE
from kprod.cli.demo.writers import Written
from kprod.spark.pipeline import Pipeline, pipeline_session, run_pipeline

TASKS = 4
CORES = 2

# All flights of one aircraft are in one Spark partition, in the order of the data set: so the order
# per key is defined although tasks run side by side.
IN_ORDER = f"""
    select * from (select /*+ REPARTITION({TASKS}, tailnum) */ * from input)
    sort by cast(row as int)
"""


def keyed_flights(columns: Sequence[str]) -> str:
    """SQL for key and value: each flight as a struct, keyed by the aircraft's tail number.

    ``columns`` are those of the data set, of which the first is the number of the row.
    """
    fields = ", ".join(columns[1:])
    return f"""
        select nullif(tailnum, '{NOT_AVAILABLE}') as key,
               struct(cast(row as int) as row, spark_partition_id() as task, {fields}) as value
        from ({IN_ORDER})
    """


def run(
    csv: Path, bootstrap_servers: str, topic: str, options: Mapping[str, Any], scratch: Path
) -> Written:
    """Write the flights of ``csv`` to ``topic``, as JSON, and return what the tasks report."""
    with csv.open() as lines:
        columns = next(lines).strip().split(",")
    pipeline = Pipeline(
        path=str(csv),
        format="csv",
        read_options={"header": "true"},
        sql=keyed_flights(columns),
        topic=topic,
        bootstrap_servers=bootstrap_servers,
        options={**options, "value_format": "json", "progress": False},
        master=f"local[{CORES}]",
        spark_conf={"spark.sql.shuffle.partitions": str(TASKS)},
    )
    with pipeline_session(pipeline, scratch) as spark:
        result = run_pipeline(spark, pipeline, lambda *_: None)
    return Written(
        records=result.records,
        bytes=result.bytes,
        seconds=result.seconds,
        tasks=len(result.shards),
    )


def main() -> None:
    """Run the job the command line describes and leave its account in a file."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--csv", type=Path, required=True)
    parser.add_argument("--bootstrap-servers", required=True)
    parser.add_argument("--topic", required=True)
    parser.add_argument("--options", type=Path, required=True)
    parser.add_argument("--scratch", type=Path, required=True)
    parser.add_argument("--report", type=Path, required=True)
    given = parser.parse_args()
    when_parent_ends(lambda: os._exit(1))  # the JVM follows: its own pipe closes with us
    options = json.loads(given.options.read_text())
    written = run(given.csv, given.bootstrap_servers, given.topic, options, given.scratch)
    written.save(given.report)


if __name__ == "__main__":
    main()
