"""A job for ``spark-submit`` that prints the paths of its kprod, and writes three topics."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Iterator


def paths(_: Iterable[int]) -> Iterator[tuple[str, str]]:
    import kprod
    from kprod_ext import BufferPool

    yield kprod.__file__, str(sys.modules[BufferPool.__module__].__file__)


if __name__ == "__main__":
    from pyspark.sql import SparkSession

    servers, rows = sys.argv[1], int(sys.argv[2])
    spark = SparkSession.builder.getOrCreate()
    found = spark.sparkContext.parallelize(range(4), 4).mapPartitions(paths).collect()

    from kprod.spark import partition_writer, write

    numbers = spark.range(0, rows, 1, 4)
    frame = numbers.selectExpr("cast(id as string) key", "concat('row ', id) value")
    write(frame, "written", bootstrap_servers=servers, progress=False)
    options = {"kafka.bootstrap.servers": servers, "topic": "saved"}
    frame.write.format("kprod").options(**options).mode("append").save()
    frame.rdd.foreachPartition(partition_writer("mapped", bootstrap_servers=servers))
    print(json.dumps(found))
