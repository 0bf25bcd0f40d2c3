"""Write to Kafka from Spark: the same producer engine, inside every task.

Needs pyspark on the driver and on the executors, and pyarrow where ``mapInArrow`` is used::

    from kprod.spark import partition_writer

    pw = partition_writer("flights", bootstrap_servers="localhost:9092")
    reports = rdd.mapPartitions(pw).collect()
    reports = df.mapInArrow(pw, pw.schema).collect()
"""

from __future__ import annotations

from importlib.util import find_spec

if find_spec("pyspark") is None:
    raise ModuleNotFoundError(
        "kprod.spark needs pyspark, which is not installed: pip install 'kprod[spark]' "
        "(on the driver and on every executor)",
        name="pyspark",
    )

from kprod.spark.executor_producer import executor_producer
from kprod.spark.partition_report import OffsetRange, PartitionReport
from kprod.spark.partition_writer import PartitionWriter, partition_writer

__all__ = [
    "OffsetRange",
    "PartitionReport",
    "PartitionWriter",
    "executor_producer",
    "partition_writer",
]
