"""The Spark job of the demo, as a process: ``python -m kprod.cli.demo.flights_job DIRECTORY``"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from kprod.cli.child_process import when_parent_ends
from kprod.cli.demo.flights import NOT_AVAILABLE
from kprod.cli.demo.writers import Written
from kprod.cli.spark_pipeline import Pipeline, pipeline_session, run_pipeline

TASKS = 4
CORES = 2

# All flights of one aircraft are in one Spark partition, in the order of the data set. This defines
# the order per key although tasks run in parallel.
IN_ORDER = f"""
    select * from (select /*+ REPARTITION({TASKS}, tailnum) */ * from input)
    sort by cast(row as int)
"""


def keyed_flights(columns: Sequence[str]) -> str:
    """SQL for value and key: the flight as a struct, and the tail number of its aircraft.

    ``columns`` are the columns of the data set. The first one is the row number.
    """
    fields = ", ".join(columns[1:])
    return f"""
        select nullif(tailnum, '{NOT_AVAILABLE}') as key,
               struct(cast(row as int) as row, spark_partition_id() as task, {fields}) as value
        from ({IN_ORDER})
    """


def run(
    csv: Path, scratch: Path, bootstrap_servers: str, topic: str, options: Mapping[str, Any]
) -> Written:
    """Write the flights of ``csv`` to ``topic`` as JSON. Return the figures that tasks report."""
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
    """Run the job that ``job.json`` describes, in the directory that the command line names."""
    work = Path(sys.argv[1])
    when_parent_ends(lambda: os._exit(1))  # then the JVM ends: its pipe closes with this process
    job = json.loads((work / "job.json").read_text())
    run(work / "flights.csv", scratch=work / "spark", **job).save(work / "report.json")


if __name__ == "__main__":
    main()
