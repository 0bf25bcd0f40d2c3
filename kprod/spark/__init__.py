"""Write to Kafka from Spark: the same producer engine, inside every task.

Needs pyspark and pyarrow on the driver and on the executors::

    from kprod.spark import write

    result = write(df, "flights", bootstrap_servers="localhost:9092")
    print(result.records, result.offsets)
"""

from __future__ import annotations

from importlib.util import find_spec

if find_spec("pyspark") is None:
    raise ModuleNotFoundError(
        "kprod.spark needs pyspark, which is not installed: pip install 'kprod[spark]' "
        "(on the driver and on every executor)",
        name="pyspark",
    )

from kprod.spark.errors import (
    BatchIncomplete,
    BatchNotCommitted,
    ExactlyOnceError,
    MarkerError,
    RowErrorLimitExceeded,
    RowsChanged,
    SchemaError,
    ShardCountChanged,
    StaleBatch,
    TransactionTooSlow,
    WriteFailed,
)
from kprod.spark.executor_producer import executor_producer
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
    "WriteResult",
    "executor_producer",
    "foreach_batch",
    "partition_writer",
    "sharded",
    "write",
]
