"""Writes DataFrames, streams and RDDs to Kafka, with a producer in every Spark task.

Needs pyspark, pyarrow and pandas on the driver and on the executors::

    from kprod.spark import write

    result = write(df, "flights", bootstrap_servers="localhost:9092")
    print(result.records, result.offsets)
"""

from __future__ import annotations

from importlib.util import find_spec

if _missing := [name for name in ("pyspark", "pyarrow") if find_spec(name) is None]:
    raise ModuleNotFoundError(
        f"kprod.spark needs {_missing[0]}, which is not installed: pip install 'kprod[spark]' "
        "(on the driver and on every executor)",
        name=_missing[0],
    )

from kprod.exactly_once.errors import (
    BatchIncomplete,
    BatchNotCommitted,
    ExactlyOnceError,
    MarkerError,
    RowsChanged,
    ShardCountChanged,
    StaleBatch,
    TransactionTooSlow,
)
from kprod.spark.errors import RowErrorLimitExceeded, SchemaError, WriteFailed
from kprod.spark.executor_producer import executor_producer
from kprod.spark.options import WriteOptions, WriterOptions
from kprod.spark.partition_writer import PartitionWriter, partition_writer
from kprod.spark.sharded import sharded
from kprod.spark.write import foreach_batch, write
from kprod.spark.write_result import OffsetRange, PartitionReport, WriteResult

__all__ = [
    "BatchIncomplete",
    "BatchNotCommitted",
    "ExactlyOnceError",
    "MarkerError",
    "OffsetRange",
    "PartitionReport",
    "PartitionWriter",
    "RowErrorLimitExceeded",
    "RowsChanged",
    "SchemaError",
    "ShardCountChanged",
    "StaleBatch",
    "TransactionTooSlow",
    "WriteFailed",
    "WriteOptions",
    "WriteResult",
    "WriterOptions",
    "executor_producer",
    "foreach_batch",
    "partition_writer",
    "sharded",
    "write",
]
