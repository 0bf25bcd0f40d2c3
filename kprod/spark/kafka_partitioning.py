"""Rows brought together by the Kafka partition they go to, so that each is written by one task."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from pyspark.sql import DataFrame
from pyspark.sql.types import AtomicType

from kprod.errors import ConfigError, KprodError
from kprod.spark.executor_producer import lent_producer
from kprod.spark.partition_writer import PartitionWriter
from kprod.spark.task_outcome import OUTCOME_SCHEMA, TaskOutcome

SEED = 0x9747B28C
M = 0x5BD1E995
MASK = 0xFFFFFFFF
HELD = "__kprod_task"


def murmur2_expression(key: str) -> str:
    """Kafka's ``Utils.murmur2`` of a binary column, as Spark SQL.

    All numbers are bigint and cut to 32 bits after each step: a product of two of them stays below
    2**63, so it does not matter whether arithmetic is ANSI. ``conv`` makes a number of the eight
    hexadecimal digits of four bytes, the first byte being the highest; the hash wants it lowest.
    """
    length = f"octet_length({key})"
    word = _word("substr(digits, i * 8 + 1, 8)")
    mixed = _let("k", f"({word} * {M}) & {MASK}", f"({_shifted('k', 24)} * {M}) & {MASK}")
    body = (
        f"aggregate(if({length} < 4, cast(array() as array<bigint>),"
        f" sequence(cast(0 as bigint), cast({length} div 4 - 1 as bigint))),"
        f" cast({SEED} ^ {length} as bigint),"
        f" (h, i) -> ((h * {M}) & {MASK}) ^ ({mixed}))"
    )
    tail = _word(f"rpad(substr(digits, {length} div 4 * 8 + 1, 8), 8, '0')")
    after_tail = f"if({length} % 4 = 0, h, ((h ^ {tail}) * {M}) & {MASK})"
    last = f"((({_shifted(after_tail, 13)}) * {M}) & {MASK})"
    return _let("digits", f"hex({key})", _let("h", body, _let("g", last, _shifted("g", 15))))


def _word(digits: str) -> str:
    """The number that eight hexadecimal digits stand for, its four bytes in reversed order."""
    reversed_bytes = (
        "(shiftleft(w & 255, 24) | shiftleft(w & 65280, 8)"
        " | (shiftright(w, 8) & 65280) | shiftright(w, 24))"
    )
    return _let("w", f"cast(conv({digits}, 16, 10) as bigint)", reversed_bytes)


def partition_expression(key: str | None, partition: str | None, spread: str, count: int) -> str:
    """The Kafka partition of a row of a topic of ``count``: as named, else by its key.

    Rows with neither are spread by the hash of ``spread``, the columns that remain.
    """
    chosen = f"pmod(hash({spread}), {count})"
    if key is not None:
        positive = f"({murmur2_expression(key)} & {0x7FFFFFFF})"
        chosen = f"if({key} is null, {chosen}, cast({positive} % {count} as int))"
    return chosen if partition is None else f"coalesce(cast({partition} as int), {chosen})"


def by_kafka_partition(frame: DataFrame, writer: PartitionWriter, count: int) -> DataFrame:
    """``frame`` with a partition for every row, and all rows of a partition in one task.

    ``count`` is how many the topic has. Raises ConfigError for a writer without a topic.
    """
    plan = writer.plan
    if plan.shapes.topic is None or plan.by_row or plan.key.kind != "binary":
        raise ConfigError(
            'repartition="kafka" needs a topic=, keys of bytes or text, and neither serializers nor'
            " interceptors"
        )
    found = writer.plan.roles.find(frame.columns)
    key, partition = found.get("key"), found.get("partition")
    others = [
        _quoted(field.name)
        for field in frame.schema
        if isinstance(field.dataType, AtomicType) and field.name not in (key, partition)
    ]
    target = partition_expression(
        None if key is None else f"cast({_quoted(key)} as binary)",
        None if partition is None else _quoted(partition),
        ", ".join(others) or "1",
        count,
    )
    name = "partition" if partition is None else partition
    others = [_quoted(other) for other in frame.columns if other != name]
    placed = frame.selectExpr(*others, f"{target} as {_quoted(name)}")
    return _each_to_its_task(placed, _quoted(name), count)


def _each_to_its_task(frame: DataFrame, partition: str, count: int) -> DataFrame:
    """Spark puts a row into the task ``pmod(hash(x), count)``: so find an ``x`` for every task."""
    spark = frame.sparkSession
    numbers = spark.range(0, 64 * count + 1024).selectExpr(
        "cast(id as int) as x", f"pmod(hash(cast(id as int)), {count}) as task"
    )
    rows = numbers.groupBy("task").agg({"x": "min"}).collect()
    found = {row["task"]: row["min(x)"] for row in rows}
    images = ", ".join(str(found[task]) for task in range(count))
    # A partition that the topic does not have is a row's fault, to be judged by the task.
    task = f"element_at(array({images}), pmod({partition}, {count}) + 1) as {HELD}"
    return frame.selectExpr("*", task).repartition(count, HELD).drop(HELD)


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


def _shifted(number: str, bits: int) -> str:
    """``x ^ (x >>> bits)``: of a positive bigint ``shiftright`` is the unsigned one."""
    if number.isidentifier():
        return f"({number} ^ shiftright({number}, {bits}))"
    return _let("x", number, f"(x ^ shiftright(x, {bits}))")


def _let(name: str, value: str, body: str) -> str:
    """``body`` with ``name`` standing for ``value``, which is computed once.

    SQL has no other way: a function of each element of an array, which has one.
    """
    return f"element_at(transform(array({value}), {name} -> {body}), 1)"


def _quoted(name: str) -> str:
    return "`" + name.replace("`", "``") + "`"
