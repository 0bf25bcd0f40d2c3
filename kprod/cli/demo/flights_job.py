"""The Spark job of the demo, run as a process: ``python -m kprod.cli.demo.flights_job``."""

from __future__ import annotations

import argparse
import os
import time
from pathlib import Path
from typing import Any

from kprod.cli.demo.flights import NOT_AVAILABLE
from kprod.cli.demo.written import Written
from kprod.cli.lifeline import when_parent_ends
from kprod.spark import partition_writer
from kprod.spark.local_session import local_session

TASKS = 4
CORES = 2


def keyed_json(flights: Any) -> Any:
    """A DataFrame of key and value: each flight as JSON, keyed by the aircraft's tail number.

    All flights of one aircraft are in one Spark partition, in the order of the data set: so the
    order per key is defined although tasks run side by side.
    """
    columns = flights.columns[1:]
    return (
        flights.selectExpr("cast(row as int) as row", *columns)
        .repartition(TASKS, "tailnum")
        .sortWithinPartitions("row")
        .selectExpr(
            f"nullif(tailnum, '{NOT_AVAILABLE}') as key",
            f"to_json(struct(row, spark_partition_id() as task, {', '.join(columns)})) as value",
        )
    )


def run(csv: Path, bootstrap_servers: str, topic: str, scratch: Path) -> Written:
    """Write the flights of ``csv`` to ``topic`` and return the sum of the tasks' reports."""
    writer = partition_writer(topic, bootstrap_servers=bootstrap_servers)
    with local_session("kprod demo", cores=CORES, scratch=scratch) as spark:
        records = keyed_json(spark.read.csv(str(csv), header=True)).rdd
        started = time.monotonic()
        reports = records.mapPartitions(writer).collect()
        return Written(
            records=sum(report["records"] for report in reports),
            bytes=sum(report["bytes"] for report in reports),
            seconds=time.monotonic() - started,
            tasks=len(reports),
        )


def main() -> None:
    """Run the job the command line describes and leave its account in a file."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--csv", type=Path, required=True)
    parser.add_argument("--bootstrap-servers", required=True)
    parser.add_argument("--topic", required=True)
    parser.add_argument("--scratch", type=Path, required=True)
    parser.add_argument("--report", type=Path, required=True)
    given = parser.parse_args()
    when_parent_ends(lambda: os._exit(1))  # the JVM follows: its own pipe closes with us
    run(given.csv, given.bootstrap_servers, given.topic, given.scratch).save(given.report)


if __name__ == "__main__":
    main()
