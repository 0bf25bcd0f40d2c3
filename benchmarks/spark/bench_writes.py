"""How many nanoseconds does a row of a DataFrame take until it is acknowledged?

    make bench ARGS="-k writes"

Spark in this process, two tasks at once, and a receiver that counts and keeps nothing.
``benchmarks.spark`` compares with other writers, at a size that says more.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from benchmarks.sink.sink_process import SinkProcess
from kprod.cli.spark_runtime import why_no_spark

WHY_NOT = why_no_spark()
ROWS, ROUNDS, WARM_UP = 100_000, 3, 1
CALLS = ("kprod write", "kprod mapPartitions", "no-op mapInArrow")


@pytest.fixture(scope="module")
def rows(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    from benchmarks.spark.rows import stored_rows
    from kprod.cli.spark_pipeline import session_on

    folder: Path = tmp_path_factory.mktemp("spark")
    settings = {"spark.sql.shuffle.partitions": "4"}
    with session_on("local[2]", "bench", scratch=folder, settings=settings) as spark:
        yield stored_rows(spark, "synthetic-100", ROWS, folder)


@pytest.mark.skipif(WHY_NOT is not None, reason=str(WHY_NOT))
@pytest.mark.filterwarnings("default")  # as of a kernel
@pytest.mark.benchmark(group="writes")
@pytest.mark.parametrize("name", CALLS)
def test_writes(benchmark: Any, rows: Any, name: str) -> None:
    from benchmarks.spark.ways import WAYS, WRITE_NOTHING

    with SinkProcess() as sink:

        def write() -> None:
            WAYS[name](rows, sink.bootstrap_servers, "t")

        benchmark.pedantic(write, rounds=ROUNDS, warmup_rounds=WARM_UP)
        expected = 0 if name in WRITE_NOTHING else ROWS
        assert sink.counts()["records"] >= expected
    benchmark.extra_info["question"] = f"{ROWS:,} rows of 100 B by {name}"
    benchmark.extra_info["operations"] = ROWS
