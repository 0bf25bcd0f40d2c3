"""Writes whole Spark partitions to Kafka."""

from __future__ import annotations

import logging
import math
import os
import socket
import time
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal, Unpack

import pyarrow as pa
from pyspark.sql import types

from kprod.errors import ConfigError, KprodError, RecordTypeError
from kprod.exactly_once.atomic import prepare
from kprod.exactly_once.protocol import deliver
from kprod.exactly_once.runner import Runner
from kprod.exactly_once.shard import Shard
from kprod.exactly_once.steps import Delivered
from kprod.intake.arguments import check_seconds, check_topic
from kprod.schema.columns.arrow_types import check_python
from kprod.schema.columns.record_columns import converters
from kprod.spark.acknowledgements import RowPolicy, policy_of
from kprod.spark.column_roles import roles_of
from kprod.spark.delivery import ATOMIC, Terms, terms_of
from kprod.spark.errors import SchemaError
from kprod.spark.executor_producer import (
    MeasuringProducer,
    TaskProducer,
    lent_producer,
    producer_options,
)
from kprod.spark.options import (
    OF_THE_WRITER,
    WriterOptions,
    check_names,
    concealed_for_tasks,
    config_of,
    divided,
    fingerprint_of,
    job_options,
    transactional_options,
)
from kprod.spark.payload_options import key_format, value_format
from kprod.spark.python_worker import (
    acknowledge_at_once,
    freeze_modules,
    log_for_spark,
    this_task,
)
from kprod.spark.record_shapes import RecordShapes
from kprod.spark.shard_rows import HASH_COLUMN, SHARD_COLUMN, ShardTask, TaskRows
from kprod.spark.task_sender import RateLimit, RateLimiter, RecordPlan, TaskSender
from kprod.spark.write_result import (
    ALREADY_THERE,
    COMMITTED,
    PREPARED,
    SCHEMA,
    OffsetRange,
    PartitionReport,
    as_record_batch,
)

log = logging.getLogger("kprod")


def partition_writer(
    topic: str | None = None,
    *,
    output: Literal["report", "none"] = "report",
    **options: Unpack[WriterOptions],
) -> PartitionWriter:
    """Return a callable that writes every item of a partition to Kafka.

    The callable can be pickled and is thread-safe. If ``topic`` is None, each row needs a column
    ``topic``. With ``output="none"``, it returns no reports.

    The options are those of ``WriterOptions`` and of ``KafkaProducer``; only ``bootstrap_servers``
    is required. Strings may contain ``${env:NAME}`` and ``${file:PATH:KEY}``, which are replaced on
    the executor.

    Every time Spark runs the callable, it writes the rows again. Some transformations run it more
    than once in a single action: ``orderBy`` and ``sortBy`` sample the reports first. Collect the
    reports before you sort them, or use ``write``.

    Raises InvalidTopicError for an invalid topic name. Raises ConfigError for an invalid option, an
    option that cannot be pickled, and ``delivery="atomic"``. Both are raised on the driver.
    """
    options = concealed_for_tasks(options)
    if options.get("delivery") == ATOMIC:
        raise ConfigError(
            'delivery="atomic" is only for write, foreach_batch and format("kprod"), which commit'
            ' all tasks together; partition_writer runs in tasks only: use "exactly_once"'
        )
    if output not in ("report", "none"):
        raise ConfigError(f'output: expected "report" or "none"; got {output!r}')
    return replace(task_writer(topic, **options), reports=output == "report")


def task_writer(topic: str | None = None, **options: Unpack[WriterOptions]) -> PartitionWriter:
    """As ``partition_writer``, for a driver that ends atomic batches. Raises as that does."""
    options = concealed_for_tasks(options)
    own, producers = divided(options, OF_THE_WRITER)
    check_names(producers)
    if "bootstrap_servers" not in options:
        raise ConfigError("bootstrap_servers: the option is missing")
    topic = None if topic is None else check_topic(topic)
    timeout = own.get("timeout")
    try:
        check_seconds("timeout", timeout, math.inf)
    except KprodError:
        raise ConfigError(f"timeout: expected seconds or None; got {timeout!r}") from None
    shipped = job_options(producers)
    terms = terms_of(topic, own)
    if terms is not None:
        shipped = transactional_options(shipped)
    config = config_of(shipped)
    encode_key, encode_value = config.key_serializer is None, config.value_serializer is None
    key, value = own.get("key", "key"), own.get("value", "value")
    shapes = RecordShapes(
        topic=topic, key=key, value=value, encode_key=encode_key, encode_value=encode_value
    )
    plan = RecordPlan(
        shapes=shapes,
        roles=roles_of(own),
        value=value_format(topic, own),
        key=key_format(own.get("key_format", "binary")),
        by_row=bool(config.interceptors) or not (encode_key and encode_value),
    )
    return PartitionWriter(
        plan=plan,
        policy=policy_of(own),
        limit=RateLimit(),
        reports=True,
        timeout=timeout,
        options=shipped,
        fingerprint=fingerprint_of(shipped),
        terms=terms,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionWriter:
    """For ``rdd.mapPartitions``, ``foreachPartition``, and ``df.mapInArrow`` with ``schema``.

    A call writes the whole partition with the producer of the worker process. It returns when every
    record is acknowledged. If a record fails, it raises, and the task fails. Spark may then run the
    task again from its first row, so records may be duplicated. With exactly-once delivery, each
    partition is written once, in a transaction. Immutable.
    """

    plan: RecordPlan
    policy: RowPolicy
    limit: RateLimit  # of one task
    reports: bool
    timeout: float | None
    options: Mapping[str, Any] = field(repr=False)  # those of ``concealed_for_tasks``
    fingerprint: str = field(repr=False)
    terms: Terms | None = None  # of exactly once

    @property
    def schema(self) -> str:
        """The columns of the reports as Spark DDL, for ``df.mapInArrow``."""
        return SCHEMA

    def __call__(self, items: Iterable[Any]) -> Any:
        """Write ``items``, and return an iterator over the report.

        If the items are record batches, the report is a ``pyarrow.RecordBatch`` with one row. If
        not, it is a dict. An empty partition has no report. Raises DeliveryError if records are not
        acknowledged, RecordTypeError for an invalid item, and the exceptions of
        ``KafkaProducer.send``.
        """
        rows = _rows_of_task(items)
        if rows.is_empty:
            return iter(())
        report = self._write(rows)
        if not self.reports:
            return iter(())
        return iter((as_record_batch(report) if rows.are_batches else report.as_dict(),))

    def write(self, items: Iterable[Any]) -> PartitionReport:
        """The task of every surface: write what a call takes. Raises as a call.

        At least once the worker's producer sends it, and the task is done when all is acknowledged.
        Exactly once it is a shard, a transaction that is committed with its marker; atomic, that is
        left prepared for the driver.
        """
        return self._write(_rows_of_task(items))

    def _write(self, rows: TaskRows) -> PartitionReport:
        started, task = time.monotonic(), this_task()

        def report(**told: Any) -> PartitionReport:
            return PartitionReport(
                task=task.partition,
                attempt=task.attempt,
                seconds=time.monotonic() - started,
                input_seconds=rows.seconds,
                host=socket.gethostname(),
                pid=os.getpid(),
                **told,
            )

        if self.terms is None:
            with lent_producer(
                self.fingerprint, self.options, self.timeout, self.policy
            ) as producer:
                # Row by row, reading a clock twice would cost too much.
                self._send(rows, rows.each() if rows.are_batches else rows.items, producer)
            return report(**producer.figures())
        if rows.is_empty:  # no row can be there twice
            return report(delivered=COMMITTED)
        shard = self.terms.shard(task, rows.place(task.partition))
        writes = ShardTask(
            rows=rows,
            send=lambda producer, tick: self._send(rows, rows.each(tick), producer),
            policy=self.policy,
            timeout=self.timeout,
        )
        with Runner(shard=shard, options=producer_options(self.options), rows=writes) as runner:
            delivered = runner.follow(
                prepare(shard, max(task.attempt, 0), runner.patience)
                if self.terms.is_atomic
                else deliver(shard, runner.patience)
            )
        written = report(**_of_shard(shard, delivered, writes.producer, task.attempt))
        log.info("%s: %s, %d records", shard, written.delivered.replace("_", " "), written.records)
        return written

    def _send(self, rows: TaskRows, items: Iterator[Any], producer: MeasuringProducer) -> None:
        limiter = None if self.limit.is_unlimited else RateLimiter(self.limit)
        sender = TaskSender(self.plan, producer, limiter)
        (sender.send_batches if rows.are_batches else sender.send_items)(items)


def _rows_of_task(items: Iterable[Any]) -> TaskRows:
    acknowledge_at_once()
    freeze_modules()
    log_for_spark()
    return TaskRows(items)


def _of_shard(
    shard: Shard, delivered: Delivered, producer: TaskProducer | None, attempt: int
) -> dict[str, Any]:
    """What a report says of a shard; ``producer`` has sent its rows, if they were sent."""
    marker, waits = delivered.marker, delivered.prepared
    if not delivered.by_us:
        ranges = [
            OffsetRange(topic=topic, partition=number, first=first, last=last, records=records)
            for topic, found in marker.ranges.items()
            for number, first, last, records in found
        ]
        return {
            "records": marker.rows,
            "bytes": marker.bytes,
            "offsets": ranges,
            "delivered": ALREADY_THERE,
            "transactional_id": shard.transactional_id,
        }
    return {
        **({} if producer is None else producer.figures()),
        "delivered": COMMITTED if waits is None else PREPARED,
        "rewritten": delivered.rewritten or attempt > 0,
        "transactional_id": (shard if waits is None else waits.shard).transactional_id,
        "prepared": waits,
    }


def check_schema(schema: types.StructType, writer: PartitionWriter) -> None:
    """Raises SchemaError naming the column of ``schema`` that ``writer`` could not send."""
    plan, topic = writer.plan, writer.plan.shapes.topic
    added = () if writer.terms is None else (SHARD_COLUMN, HASH_COLUMN)
    names = [name for name in schema.names if name not in added]
    try:
        found = plan.roles.find(names)
        if topic is None and "topic" not in found:
            raise RecordTypeError(
                "the records have no topic: set the option topic, or select a column named topic"
            )
        if topic is not None:  # what was given wins
            found.pop("topic", None)
        kinds = {role: arrow_type(schema[name].dataType) for role, name in found.items()}
        shown = {role: f"column {name!r}" for role, name in found.items()}
        if "value" not in found:
            packed = types.StructType([schema[name] for name in plan.roles.packed(names)])
            kinds["value"], shown["value"] = arrow_type(packed), "the columns"
        if plan.by_row:  # a serializer of the application takes them
            for role in kinds.keys() & {"value", "key"}:
                check_python(f"{role}: {shown[role]}", kinds.pop(role))
        converters(kinds, topic, plan.value, plan.key, shown)
    except RecordTypeError as error:
        raise SchemaError(str(error)) from None


def arrow_type(kind: types.DataType) -> Any:
    """The type of the Arrow columns that Spark makes of a type. Raises SchemaError without one."""
    if isinstance(kind, types.StructType):
        return pa.struct([pa.field(each.name, arrow_type(each.dataType)) for each in kind])
    if isinstance(kind, types.ArrayType):
        return pa.list_(arrow_type(kind.elementType))
    if isinstance(kind, types.MapType):
        if isinstance(kind.keyType, types.NullType):
            raise SchemaError(f"{kind.simpleString()} is not supported: its keys are null")
        return pa.map_(arrow_type(kind.keyType), arrow_type(kind.valueType))
    if isinstance(kind, types.UserDefinedType):
        return arrow_type(kind.sqlType())
    return _arrow_type_without_parts(kind)


def _arrow_type_without_parts(kind: types.DataType) -> Any:
    if isinstance(kind, types.DecimalType):
        return pa.decimal128(kind.precision, kind.scale)
    if isinstance(kind, types.TimestampType):
        return pa.timestamp("us", "UTC")
    name = kind.typeName()
    if name in _MARKED:
        return pa.struct([pa.field(_MARKED[name], pa.binary(), metadata={name: "true"})])
    if name not in _ARROW:
        raise SchemaError(f"{kind.simpleString()} is not supported: cast the column")
    return pa.type_for_alias(_ARROW[name])


_ARROW = {
    "boolean": "bool",
    "byte": "int8",
    "short": "int16",
    "integer": "int32",
    "long": "int64",
    "float": "float",
    "double": "double",
    "string": "string",
    "char": "string",
    "varchar": "string",
    "binary": "binary",
    "date": "date32",
    "timestamp_ntz": "timestamp[us]",
    "time": "time64[ns]",
    "daytimeinterval": "duration[us]",
    "void": "null",
}
_MARKED = {"variant": "metadata", "geometry": "wkb", "geography": "wkb"}
"""By the names of Spark's types: that of an Arrow type, or of the field that marks a struct."""
