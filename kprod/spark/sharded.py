"""Shuffles rows so that each task gets one shard, or the rows of one Kafka partition."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pyarrow as pa
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, functions
from pyspark.sql.types import (
    ArrayType,
    DataType,
    MapType,
    NullType,
    StructType,
    VariantType,
)

from kprod.errors import ConfigError, KprodError
from kprod.spark.delivery import UNPLACED, Terms
from kprod.spark.errors import SchemaError
from kprod.spark.job_tasks import TaskOutcome, call_in_task, is_fatal, raise_failure
from kprod.spark.options import config_of
from kprod.spark.partition_writer import NEEDLESSLY_SHARDED, PartitionWriter
from kprod.spark.repeatable import check_repeatable, quoted
from kprod.spark.shard_rows import HASH_COLUMN, SHARD_COLUMN, Layout, check_count
from kprod_ext import ArrowChunk, ArrowSource, partitions_for_keys

CHUNK_ROWS = 1_024
UNLIMITED = 2**62
HAS_ARROW = hasattr(functions, "arrow_udf")  # since Spark 4.1


def key_partitions(count: int, *, arrow: bool = HAS_ARROW) -> Any:
    """Return a function that converts a column of keys to the partitions of their records.

    The topic has ``count`` partitions. Keys are text or binary. The result is an integer column
    with the partition that the producer would choose, or -1 for a null. Only keys are sent to the
    Python worker, and only integers are sent back. Both are Arrow data, or pandas Series if
    ``arrow`` is False.
    """

    def of_array(keys: Any) -> Any:
        return chosen_partitions(keys, count)

    def of_series(keys: Any) -> Any:
        return of_array(pa.array(keys, pa.large_binary(), from_pandas=True)).to_pandas()

    kind, function, column = "arrow_udf", of_array, pa.Array
    if not arrow:
        import pandas as pd

        kind, function, column = "pandas_udf", of_series, pd.Series
    function.__annotations__ = {"keys": column, "return": column}
    return getattr(functions, kind)(function, "int")  # by name: it is not in Spark's types


def chosen_partitions(keys: Any, count: int) -> Any:
    """The partitions for a ``pyarrow.Array`` of keys, as an array of int32; -1 for a null."""
    source = ArrowSource(pa.RecordBatch.from_arrays([keys], ["key"]))
    chunk = ArrowChunk(CHUNK_ROWS, source, -1, 0, -1, -1, -1, 1, 1)
    chunk.next_batch(UNLIMITED)
    found = partitions_for_keys(chunk, len(keys), count)
    return pa.Array.from_buffers(pa.int32(), len(keys), [None, pa.py_buffer(found)])


MASK = 0xFFFFFFFF
HELD = "__kprod_task"
CHOSEN = "__kprod_chosen"
TARGET = "__kprod_partition"


def check_gathers(writer: PartitionWriter) -> None:
    """Raise ConfigError if ``repartition="kafka"`` is not possible with this writer."""
    plan, config = writer.plan, config_of(writer.producer.options)
    if config.partitioner != "default" or config.partitioner_ignore_keys:
        raise ConfigError(
            'repartition="kafka" requires partitioner="default" and partitioner_ignore_keys=False:'
            " remove it, or the other option"
        )
    if plan.topic is None or plan.by_row or plan.key.kind != "binary":
        raise ConfigError(
            'repartition="kafka" requires the option topic, keys of type binary or string, and no'
            " serializers or interceptors"
        )


def by_kafka_partition(
    frame: DataFrame, writer: PartitionWriter, count: int
) -> tuple[DataFrame, PartitionWriter]:
    """Add the partition to each row of ``frame``, and shuffle each partition into one task.

    The topic has ``count`` partitions. ``writer`` must have passed ``check_gathers``. The returned
    writer sends each row to the partition in the added column.
    """
    found = writer.plan.find(frame.columns)
    key, partition = found.get("key"), found.get("partition")
    packed = () if "value" in found else writer.plan.packed(frame.columns)
    kept = [quoted(name) for name in frame.columns if name != partition or name in packed]
    spread = [
        quoted(field.name) if _hashable(field.dataType) else f"to_json({quoted(field.name)})"
        for field in frame.schema
        if field.name not in (key, partition)
    ]
    # Rows with neither a partition nor a key are spread by the hash of the other columns, and not
    # by their number, which may differ when Spark computes them again.
    target = f"pmod(hash({', '.join(spread) or '1'}), {count})"
    if key is not None and not isinstance(frame.schema[key].dataType, NullType):
        frame = frame.withColumn(CHOSEN, key_partitions(count)(frame[quoted(key)]))
        target = f"if({CHOSEN} < 0, {target}, {CHOSEN})"
    if partition is not None:
        target = f"coalesce(cast({quoted(partition)} as bigint), {target})"
    placed = frame.selectExpr(*kept, f"{target} as {TARGET}")
    columns = {**writer.plan.columns, "partition": TARGET}
    plan = replace(writer.plan, columns=columns, added=frozenset({TARGET}))
    return _each_to_its_task(placed, TARGET, count), replace(writer, plan=plan)


def _each_to_its_task(frame: DataFrame, partition: str, count: int) -> DataFrame:
    """Shuffle the rows so that each value of ``partition`` modulo ``count`` has its own task.

    Spark puts a row with the number ``x`` into the task ``pmod(hash(x), count)``. So each row gets
    a number ``x`` that leads to the right task.
    """
    images = ", ".join(map(str, numbers_by_task(count)))
    # A partition that the topic does not have is a row's fault, to be judged by the task.
    number = f"cast(pmod({partition}, {count}) as int) + 1"
    task = f"element_at(array({images}), {number}) as {HELD}"
    return frame.selectExpr("*", task).repartition(count, HELD).drop(HELD)


def numbers_by_task(count: int) -> list[int]:
    """For each task, the smallest natural number that Spark's hash partitioning assigns to it."""
    found: dict[int, int] = {}
    number = 0
    while len(found) < count:
        found.setdefault(spark_hash(number) % count, number)
        number += 1
    return [found[task] for task in range(count)]


def spark_hash(number: int) -> int:
    """Spark's ``hash`` of an int from 0 to 2**31 - 1: MurmurHash3 (32 bit, Appleby) with seed 42.

    Computing the hash with Spark would need a job, which takes a quarter of a second.
    """
    word = _rotated(number * 0xCC9E2D51 & MASK, 15) * 0x1B873593 & MASK
    state = (_rotated(42 ^ word, 13) * 5 + 0xE6546B64 & MASK) ^ 4  # the length in bytes
    state = (state ^ state >> 16) * 0x85EBCA6B & MASK
    state = (state ^ state >> 13) * 0xC2B2AE35 & MASK
    state ^= state >> 16
    return state - (state >> 31 << 32)


def _rotated(word: int, bits: int) -> int:
    return (word << bits | word >> 32 - bits) & MASK


def partition_count(frame: DataFrame, writer: PartitionWriter) -> int:
    """The number of partitions of the writer's topic, requested in a task.

    Raises WriteFailed for the errors of the executor's producer.
    """

    def ask() -> int | KprodError:
        try:
            with writer.producer.lend() as producer:
                return producer.partition_count(str(writer.plan.topic))
        except KprodError as error:
            if not is_fatal(error):
                raise  # another attempt may succeed
            return error

    title = f"kprod: partitions of {writer.plan.topic}"
    answer = call_in_task(frame.sparkSession, title, ask)
    if isinstance(answer, KprodError):
        raise_failure([TaskOutcome(task=0, failure=answer)])
    return int(answer)


def sharded(df: DataFrame, shards: int, by: str | Sequence[str] | None = None) -> DataFrame:
    """Shuffle the rows of ``df`` into a fixed number of ``shards``, for exactly-once delivery.

    Call it as the last step before writing. The shard of a row is determined by a hash of the
    columns ``by`` (default: all columns that Spark can hash). With ``by="key"``, all records of a
    key are in one shard.

    The result also has the columns ``kprod_shard`` (the shard) and ``kprod_shard_hash`` (the hash),
    which are not written to Kafka. ``delivery="exactly_once"`` uses them to check that each row is
    in its shard, and that a retried shard has the same rows.

    Raises ConfigError if ``shards`` is not 1 to 10,000, if the query plan is not deterministic, or
    if the rows are sharded already. Raises SchemaError if a column does not exist or cannot be
    hashed. In a flow of a Declarative Pipeline, ``by`` is required, and Spark checks the columns
    when the flow runs.
    """
    return in_shards(df, shards, by, option="by")


def in_shards(
    df: DataFrame, shards: int, by: str | Sequence[str] | None, *, option: str
) -> DataFrame:
    """As ``sharded``. Errors call ``by`` by the name of the caller's ``option``."""
    check_count(shards)
    schema = _schema_of(df)
    if schema is not None and is_sharded(schema):
        raise ConfigError(
            "sharded() was called twice for these rows: call it once, as the last step"
        )
    placing = _columns(schema, by, option)
    if schema is not None:
        check_repeatable(df, None if by is None else placing)
    columns = ", ".join(map(quoted, placing))
    number = f"cast(pmod({HASH_COLUMN}, {shards}) as int)"
    packed = f"{Layout(0, shards).packed}L + {number}"
    placed = df.selectExpr("*", f"xxhash64({columns}) as {HASH_COLUMN}")
    placed = _each_to_its_task(placed, HASH_COLUMN, shards)
    if schema is None:
        return placed.selectExpr("*", f"{packed} as {SHARD_COLUMN}")
    kept = [quoted(name) for name in schema.names]
    return placed.selectExpr(*kept, f"{packed} as {SHARD_COLUMN}", HASH_COLUMN)


UNTOLD = "ATTEMPT_ANALYSIS_IN_PIPELINE_QUERY_FUNCTION"
"""Spark's error condition if a flow of a Declarative Pipeline reads a schema."""


def _schema_of(df: DataFrame) -> StructType | None:
    try:
        return df.schema
    except PySparkException as error:
        if UNTOLD not in str(error):
            raise
        return None


def is_sharded(schema: StructType) -> bool:
    """Whether rows with this schema contain the number of their shard."""
    return SHARD_COLUMN in schema.names


def check_placed(terms: Terms | None, schema: StructType) -> None:
    """Raise ConfigError if rows are sharded needlessly, or if they should be sharded and are not.

    At-least-once delivery (``terms`` is None) does not need shards. Exactly-once delivery needs
    them if a later run may write the same batch again.
    """
    if terms is None and is_sharded(schema):
        raise ConfigError(NEEDLESSLY_SHARDED)
    if terms is not None and terms.is_lasting and not is_sharded(schema):
        raise ConfigError(UNPLACED)


def shard_count(df: DataFrame) -> int | None:
    """The number of shards of a frame that ``sharded`` has returned; None if unknown.

    Only the plan of a classic session shows this number.
    """
    frame: Any = getattr(df, "_jdf", None)
    if frame is None or not is_sharded(df.schema):
        return None
    node = frame.queryExecution().analyzed()
    while node.nodeName() in ("Project", "SubqueryAlias"):
        node = node.children().apply(0)
    return int(node.numPartitions()) if node.nodeName() == "RepartitionByExpression" else None


def _columns(schema: StructType | None, by: str | Sequence[str] | None, option: str) -> list[str]:
    named = [by] if isinstance(by, str) else list(by or ())
    if schema is None:
        if not named:
            raise ConfigError(
                "sharded() in a flow of a Declarative Pipeline needs by=, the columns that"
                " determine the shard of a row: Spark does not report the columns of a flow's input"
            )
        return named
    found = named
    if by is None:
        found = [field.name for field in schema if _hashable(field.dataType)]
    missing = sorted(set(found) - set(schema.names))
    if missing or not found:
        raise SchemaError(
            f"{option}: expected columns among {sorted(schema.names)}; got {missing or found}"
        )
    for name in found:
        if not _hashable(schema[name].dataType):
            kind = schema[name].dataType.simpleString()
            raise SchemaError(f"{option}: Spark cannot hash column {name!r}, which is {kind}")
    return found


def _hashable(kind: DataType) -> bool:
    if isinstance(kind, ArrayType):
        return _hashable(kind.elementType)
    if isinstance(kind, StructType):
        return all(_hashable(field.dataType) for field in kind)
    return not isinstance(kind, MapType | VariantType)
