"""Rows put into shards by what is in them, wherever Spark had them before."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from pyspark.sql import DataFrame
from pyspark.sql.types import ArrayType, DataType, MapType, StructType, VariantType

from kprod.errors import ConfigError
from kprod.spark.errors import SchemaError
from kprod.spark.exactly_once.placement import SHARD_COLUMN, Layout, check_count
from kprod.spark.exactly_once.shard import UNPLACED, Terms
from kprod.spark.kafka_partitioning import HELD, numbers_by_task


def sharded(df: DataFrame, shards: int, by: str | Sequence[str] | None = None) -> DataFrame:
    """``df`` in as many partitions as ``shards``, each row in the one that its columns say.

    ``by`` names these columns, one or more; None: all that Spark can hash. Rows that are alike in
    them are in the same shard, so ``by="key"`` keeps the records of a key in one. A column named
    ``kprod_shard`` lets ``delivery="exactly_once"`` prove that rows are where they belong: make
    this the last step before writing. It is a shuffle.

    Raises ConfigError for a number that cannot be, and where Spark says that rows are not the same
    when they are computed again; SchemaError for columns that are not there.
    """
    check_count(shards)
    if by is None:
        _check_determinism(df)
    columns = ", ".join(map(_quoted, _columns(df, by)))
    images = ", ".join(map(str, numbers_by_task(shards)))
    number = f"cast(pmod(xxhash64({columns}), {shards}) as int)"
    packed = f"{Layout(0, shards).packed}L + {SHARD_COLUMN}"
    placed = df.selectExpr("*", f"{number} as {SHARD_COLUMN}")
    placed = placed.selectExpr("*", f"element_at(array({images}), {SHARD_COLUMN} + 1) as {HELD}")
    placed = placed.repartition(shards, HELD).drop(HELD)
    kept = [_quoted(name) for name in df.columns]
    return placed.selectExpr(*kept, f"{packed} as {SHARD_COLUMN}")


def is_sharded(schema: StructType) -> bool:
    """Whether rows of this schema say which shard they belong to."""
    return SHARD_COLUMN in schema.names


def check_placed(terms: Terms | None, schema: StructType) -> None:
    """Raises ConfigError where a later start could write a batch again, with other tasks."""
    if terms is not None and terms.is_lasting and not is_sharded(schema):
        raise ConfigError(UNPLACED)


def _columns(df: DataFrame, by: str | Sequence[str] | None) -> list[str]:
    if by is None:
        found = [field.name for field in df.schema if _hashable(field.dataType)]
    else:
        found = [by] if isinstance(by, str) else list(by)
    missing = sorted(set(found) - set(df.columns))
    if missing or not found:
        raise SchemaError(
            f"shard_by: expected columns among {sorted(df.columns)}; got {missing or found}"
        )
    for name in found:
        if not _hashable(df.schema[name].dataType):
            kind = df.schema[name].dataType.simpleString()
            raise SchemaError(f"shard_by: Spark cannot hash column {name!r}, which is {kind}")
    return found


def _hashable(kind: DataType) -> bool:
    if isinstance(kind, ArrayType):
        return _hashable(kind.elementType)
    if isinstance(kind, StructType):
        return all(_hashable(field.dataType) for field in kind)
    return not isinstance(kind, MapType | VariantType)


def _check_determinism(df: DataFrame) -> None:
    """Where Spark tells: on a classic session. A micro-batch keeps the time of its first start."""
    frame: Any = getattr(df, "_jdf", None)
    if frame is None:
        return
    plan = frame.queryExecution().analyzed()
    if not plan.deterministic() or (_reads_clock(df, plan) and not df.isStreaming):
        raise ConfigError(
            "the rows may not be the same when Spark computes them again (rand(), uuid(),"
            " current_timestamp(), a UDF that is marked as non-deterministic), so that they may"
            " come into another shard: say shard_by= columns that stay the same, or write the rows"
            " to a table first"
        )


def _reads_clock(df: DataFrame, plan: Any) -> bool:
    jvm: Any = df.sparkSession.sparkContext._jvm
    reads: bool = plan.containsPattern(
        jvm.org.apache.spark.sql.catalyst.trees.TreePattern.CURRENT_LIKE()
    )
    return reads


def _quoted(name: str) -> str:
    return "`" + name.replace("`", "``") + "`"
