"""Rows brought together by the Kafka partition they go to, so that each is written by one task."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from pyspark.sql import DataFrame, functions
from pyspark.sql.types import AtomicType, NullType

from kprod.errors import ConfigError, KprodError
from kprod.spark.executor_producer import lent_producer
from kprod.spark.partition_writer import PartitionWriter
from kprod.spark.producer_options import config_of
from kprod.spark.task_outcome import OUTCOME_SCHEMA, TaskOutcome
from kprod_ext import ArrowChunk, ArrowSource, partitions_for_keys

CHUNK_ROWS = 1_024
UNLIMITED = 2**62
HAS_ARROW = hasattr(functions, "arrow_udf")  # since Spark 4.1

Made = Callable[[Any], Any]
"""From a column of keys to one of partitions."""


def key_partitions(count: int, *, arrow: bool = HAS_ARROW) -> Made:
    """A function of a key column, text or binary, for a topic of ``count`` partitions.

    It makes an integer column: the partition that the producer would choose, -1 for a null. Only
    keys travel to the Python worker and only integers back: as Arrow, or, with ``arrow`` False, as
    pandas Series.
    """
    import pyarrow as pa

    def of_array(keys: Any) -> Any:
        return chosen_partitions(keys, count)

    if arrow:
        of_array.__annotations__ = {"keys": pa.Array, "return": pa.Array}
        return _made("arrow_udf", of_array)
    import pandas as pd

    def of_series(keys: Any) -> Any:
        return of_array(pa.array(keys, pa.large_binary(), from_pandas=True)).to_pandas()

    of_series.__annotations__ = {"keys": pd.Series, "return": pd.Series}
    return _made("pandas_udf", of_series)


def _made(kind: str, function: Made) -> Made:
    made: Made = getattr(functions, kind)(function, "int")  # by name: it is not in Spark's types
    return made


def chosen_partitions(keys: Any, count: int) -> Any:
    """The partition for each key of a ``pyarrow.Array`` as an array of int32; -1 for a null."""
    import pyarrow as pa

    source = ArrowSource(pa.RecordBatch.from_arrays([keys], ["key"]))
    chunk = ArrowChunk(CHUNK_ROWS, source, -1, 0, -1, -1, -1, 1, 1)
    chunk.next_batch(UNLIMITED)
    found = partitions_for_keys(chunk, len(keys), count)
    return pa.Array.from_buffers(pa.int32(), len(keys), [None, pa.py_buffer(found)])


MASK = 0xFFFFFFFF
HELD = "__kprod_task"
CHOSEN = "__kprod_partition"


def partition_expression(chosen: str | None, partition: str | None, spread: str, count: int) -> str:
    """The Kafka partition of a row of a topic of ``count``: as named, else the ``chosen`` one.

    ``chosen`` is a column, negative without a key. Rows with neither are spread by the hash of
    ``spread``, the columns that remain.
    """
    found = f"pmod(hash({spread}), {count})"
    if chosen is not None:
        found = f"if({chosen} < 0, {found}, {chosen})"
    return found if partition is None else f"coalesce(cast({partition} as bigint), {found})"


def check_gathers(writer: PartitionWriter) -> None:
    """Raises ConfigError for a writer without a topic, or with another partitioner."""
    plan, config = writer.plan, config_of(writer.options)
    if config.partitioner != "default" or config.partitioner_ignore_keys:
        raise ConfigError(
            'repartition="kafka" gathers rows by the partitions of partitioner="default", with'
            " partitioner_ignore_keys=False: leave it or the other option away"
        )
    if plan.shapes.topic is None or plan.by_row or plan.key.kind != "binary":
        raise ConfigError(
            'repartition="kafka" needs a topic=, keys of bytes or text, and neither serializers nor'
            " interceptors"
        )


def by_kafka_partition(frame: DataFrame, writer: PartitionWriter, count: int) -> DataFrame:
    """``frame`` with a partition for every row, and all rows of a partition in one task.

    ``count`` is how many the topic has. ``writer`` has passed ``check_gathers``.
    """
    found = writer.plan.roles.find(frame.columns)
    key, partition = found.get("key"), found.get("partition")
    spread = [
        _quoted(field.name)
        for field in frame.schema
        if isinstance(field.dataType, AtomicType) and field.name not in (key, partition)
    ]
    name = "partition" if partition is None else partition
    others = [_quoted(other) for other in frame.columns if other != name]
    keyed = key is not None and not isinstance(frame.schema[key].dataType, NullType)
    if keyed:
        frame = frame.withColumn(CHOSEN, key_partitions(count)(frame[_quoted(str(key))]))
    target = partition_expression(
        CHOSEN if keyed else None,
        None if partition is None else _quoted(partition),
        ", ".join(spread) or "1",
        count,
    )
    placed = frame.selectExpr(*others, f"{target} as {_quoted(name)}")
    return _each_to_its_task(placed, _quoted(name), count)


def _each_to_its_task(frame: DataFrame, partition: str, count: int) -> DataFrame:
    """Spark puts a row into the task ``pmod(hash(x), count)``: so find an ``x`` for every task."""
    images = ", ".join(map(str, numbers_by_task(count)))
    # A partition that the topic does not have is a row's fault, to be judged by the task.
    number = f"cast(pmod({partition}, {count}) as int) + 1"
    task = f"element_at(array({images}), {number}) as {HELD}"
    return frame.selectExpr("*", task).repartition(count, HELD).drop(HELD)


def numbers_by_task(count: int) -> list[int]:
    """For each task the least number of 0, 1, 2 ... that Spark puts there: a column of type int."""
    found: dict[int, int] = {}
    for x in itertools.count():
        found.setdefault(spark_hash(x) % count, x)
        if len(found) == count:
            return [found[task] for task in range(count)]
    raise AssertionError  # numbers do not end


def spark_hash(number: int) -> int:
    """Spark's ``hash`` of an int from 0 to 2**31 - 1: MurmurHash3 (32 bit, Appleby) with seed 42.

    Asking Spark takes a job of its own, a quarter of a second.
    """
    word = _rotated(number * 0xCC9E2D51 & MASK, 15) * 0x1B873593 & MASK
    state = (_rotated(42 ^ word, 13) * 5 + 0xE6546B64 & MASK) ^ 4  # the length in bytes
    state = (state ^ state >> 16) * 0x85EBCA6B & MASK
    state = (state ^ state >> 13) * 0xC2B2AE35 & MASK
    state ^= state >> 16
    return state - (state >> 31 << 32)


def _rotated(word: int, bits: int) -> int:
    return (word << bits | word >> 32 - bits) & MASK


@dataclass(frozen=True, slots=True)
class PartitionCount:
    """Asks for the number of partitions of the writer's topic: on an executor, by ``mapInArrow``.

    The driver may have no way to the brokers, nor their password.
    """

    writer: PartitionWriter

    def __call__(self, batches: Iterator[Any]) -> Iterator[Any]:
        """One row: the pickled count, or a TaskOutcome with what went wrong."""
        import pickle

        import pyarrow as pa

        writer = self.writer
        for _ in batches:
            pass
        try:
            with lent_producer(writer.fingerprint, writer.options, writer.timeout) as producer:
                told = pickle.dumps(producer.partition_count(str(writer.plan.shapes.topic)))
        except KprodError as error:
            told = TaskOutcome(task=0, failure=error).pickled()
        yield pa.RecordBatch.from_pydict({"outcome": pa.array([told], pa.binary())})


def partition_count(frame: DataFrame, writer: PartitionWriter) -> int:
    """How many partitions the writer's topic has, asked by one task.

    Raises what the executor's producer raised.
    """
    import pickle

    asked = frame.sparkSession.range(0, 1, 1, 1).mapInArrow(PartitionCount(writer), OUTCOME_SCHEMA)
    told = pickle.loads(bytes(asked.collect()[0]["outcome"]))
    if isinstance(told, TaskOutcome):
        assert told.failure is not None
        raise told.failure
    return int(told)


def _quoted(name: str) -> str:
    return "`" + name.replace("`", "``") + "`"
