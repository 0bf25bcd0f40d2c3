"""Writes whole Spark partitions to Kafka."""

from __future__ import annotations

import logging
import os
import socket
import time
import uuid
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal, Unpack

from kprod.config import ProducerConfig
from kprod.errors import ConfigError
from kprod.exactly_once.atomic import prepare
from kprod.exactly_once.protocol import deliver
from kprod.exactly_once.runner import Runner
from kprod.exactly_once.shard import Shard
from kprod.exactly_once.steps import Delivered
from kprod.intake.arguments import check_topic
from kprod.schema.columns.record_plan import RecordPlan
from kprod.spark.acknowledgements import policy_of
from kprod.spark.delivery import ATOMIC, Scope, Terms, terms_of
from kprod.spark.executor_producer import (
    JobProducer,
    MeasuringProducer,
    TaskProducer,
    producer_options,
)
from kprod.spark.options import (
    OF_THE_WRITER,
    WriterOptions,
    check_names,
    concealed_for_tasks,
    config_of,
    divided,
    job_options,
    says,
)
from kprod.spark.payload_options import key_format, value_format
from kprod.spark.python_worker import NO_TASK, TaskIdentity, exits_at_hang_up, this_task
from kprod.spark.shard_rows import ShardTask, TaskRows
from kprod.spark.task_sender import RateLimit, RateLimiter, TaskSender
from kprod.spark.write_result import (
    ALREADY_THERE,
    COMMITTED,
    EMPTY,
    PREPARED,
    SCHEMA,
    OffsetRange,
    PartitionReport,
    as_record_batch,
)

log = logging.getLogger("kprod")

NEEDLESSLY_SHARDED = (
    'sharded() is for delivery="exactly_once" and "atomic": set delivery, or write the rows'
    " without sharded()"
)


def partition_writer(
    topic: str | None = None,
    *,
    output: Literal["report", "none"] = "report",
    **options: Unpack[WriterOptions],
) -> PartitionWriter:
    """Return a callable that writes every item of a partition to Kafka.

    The callable can be pickled and is thread-safe. If ``topic`` is None, each row needs a column
    ``topic``. With ``output="none"``, the callable returns no reports.

    The options are those of ``WriterOptions`` and of ``KafkaProducer``; only ``bootstrap_servers``
    is required. Strings may contain ``${env:NAME}`` and ``${file:PATH:KEY}``, which are replaced on
    the executor.

    Every time Spark runs the callable, the callable writes the rows again, even with exactly-once
    delivery if there is no ``job_id``. ``orderBy`` and ``sortBy`` run it twice in a single action,
    and so may any shuffle of the reports (``groupBy``, ``count``) if shuffle data are lost. Collect
    the reports first, or use ``write``.

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
    """As ``partition_writer``, but also for ``delivery="atomic"``.

    With ``delivery="atomic"``, the driver has to commit or abort the batches.
    """
    options = concealed_for_tasks(options)
    own, producers = divided(options, OF_THE_WRITER)
    check_names(producers)
    if not says(options, "bootstrap_servers"):
        raise ConfigError("bootstrap_servers: the option is missing")
    topic = None if topic is None else check_topic(topic)
    terms = terms_of(topic, own)
    shipped = job_options(producers, transactional=terms is not None)
    return PartitionWriter(
        plan=_plan(topic, own, config_of(shipped)),
        producer=JobProducer(options=shipped, timeout=own.get("timeout"), policy=policy_of(own)),
        terms=terms,
    )


def _plan(topic: str | None, options: Mapping[str, Any], config: ProducerConfig) -> RecordPlan:
    """Plan the records. Raises ConfigError, for example for a format together with a serializer."""
    serializers = {"key": config.key_serializer, "value": config.value_serializer}
    for role, serializer in serializers.items():
        if serializer is not None and options.get(f"{role}_format", "binary") != "binary":
            raise ConfigError(f"{role}_format and {role}_serializer cannot be combined")
    by_row = bool(config.interceptors) or any(each is not None for each in serializers.values())
    value, key = value_format(topic, options), key_format(options.get("key_format", "binary"))
    named = {role: options[role] for role in ("key", "value") if options.get(role, role) != role}
    binary = {"value": value.kind == "binary", "key": key.kind == "binary"}
    return RecordPlan(
        topic=topic,
        columns={**named, **(options.get("columns") or {})},
        value=replace(value, objects=by_row and binary["value"]),
        key=replace(key, objects=by_row and binary["key"]),
        encode_key=binary["key"] and config.key_serializer is None,
        encode_value=binary["value"] and config.value_serializer is None,
        by_row=by_row,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionWriter:
    """The callable for ``rdd.mapPartitions``, ``foreachPartition``, and ``df.mapInArrow``.

    A call writes the whole partition with the producer of the worker process. The call returns when
    every record is acknowledged. If a record fails, the call raises, and the task fails. Spark may
    then run the task again from its first row, so records may be duplicated. With exactly-once
    delivery, each partition is written once, in a transaction. ``df.mapInArrow`` also needs
    ``schema``. Immutable.
    """

    plan: RecordPlan
    producer: JobProducer
    limit: RateLimit | None = None  # of one task
    reports: bool = True
    terms: Terms | None = None  # of exactly once

    def named(
        self, scope: Scope, query: str | None = None, batch: int | None = None
    ) -> PartitionWriter:
        """This writer for one batch. A batch that is written again has another ``fresh``."""
        if self.terms is None:
            return self
        named = replace(self.terms, scope=scope, query=query, batch=batch, fresh=uuid.uuid4().hex)
        return replace(self, terms=named)

    @property
    def schema(self) -> str:
        """The columns of the reports as Spark DDL, for ``df.mapInArrow``."""
        return SCHEMA

    def __call__(self, items: Iterable[Any]) -> Any:
        """Write ``items``, and return an iterator over the report.

        If the items are record batches, the report is a ``pyarrow.RecordBatch`` with one row. For
        other items, the report is a dict. An empty partition has no report. Raises DeliveryError if
        records are not acknowledged, RecordTypeError for an invalid item, and the exceptions of
        ``KafkaProducer.send``.
        """
        rows = TaskRows(items)
        if rows.is_empty:
            return iter(())
        report = self.write(rows)
        if not self.reports:
            return iter(())
        return iter((as_record_batch(report) if rows.are_batches else report.as_dict(),))

    def write(self, rows: TaskRows) -> PartitionReport:
        """Write the rows of one task, in all kinds of jobs. Raises as ``__call__``.

        At least once: the worker's producer sends the rows, and the call returns when all are
        acknowledged. Exactly once: the rows are a shard, and a transaction commits them together
        with the marker of the shard. Atomic: the task only prepares this transaction, and the
        driver ends it.
        """
        started, task = time.monotonic(), this_task()

        def report(**values: Any) -> PartitionReport:
            return PartitionReport(
                task=task.partition,
                attempt=task.attempt,
                seconds=time.monotonic() - started,
                input_seconds=rows.seconds,
                host=socket.gethostname(),
                pid=os.getpid(),
                **values,
            )

        layout = None if rows.is_empty else rows.place(task.partition)
        if self.terms is None:
            if layout is not None:
                raise ConfigError(NEEDLESSLY_SHARDED)
            with self.producer.lend() as producer:
                # Row by row, reading a clock twice would cost too much.
                self._send(rows, rows.each() if rows.are_batches else rows.items, producer)
            return report(**producer.figures())
        if rows.is_empty:  # no row can be there twice
            return report(delivered=EMPTY)
        shard = self.terms.shard(task, layout)
        done = _shards_of_task(task)
        if shard.transactional_id in done:  # its marker would hide the rows of this call
            raise ConfigError(
                f"{shard} was already written by this task, with the rows of an earlier call. Pass"
                " all rows of the task to the writer in one call. The earlier rows are committed:"
                " to write the job again, use a different job_id"
            )
        writes = ShardTask(
            rows=rows,
            send=lambda producer, tick: self._send(rows, rows.each(tick), producer),
            of_job=self.producer,
        )
        options, lend = producer_options(self.producer.options), self.producer.lend_alone
        with (
            exits_at_hang_up(),
            Runner(shard=shard, options=options, rows=writes, lend=lend) as runner,
        ):
            delivered = runner.follow(
                prepare(shard, max(task.attempt, 0), runner.patience)
                if self.terms.is_atomic
                else deliver(shard, runner.patience)
            )
        done.add(shard.transactional_id)
        written = report(**_of_shard(shard, delivered, writes.producer, task.attempt))
        log.info("%s: %s, %d records", shard, written.delivered.replace("_", " "), written.records)
        return written

    def _send(self, rows: TaskRows, items: Iterator[Any], producer: MeasuringProducer) -> None:
        limiter = None
        if self.limit is not None and isinstance(producer, TaskProducer):  # others send nothing
            limiter = RateLimiter(self.limit)
        sender = TaskSender(self.plan, producer, limiter)
        (sender.send_batches if rows.are_batches else sender.send_items)(items)


_written: dict[int, set[str]] = {}


def _shards_of_task(task: TaskIdentity) -> set[str]:
    """The ids of the shards that this attempt has written. A process runs one task at a time."""
    if task.attempt_id not in _written or task is NO_TASK:
        _written.clear()
    return _written.setdefault(task.attempt_id, set())


def _of_shard(
    shard: Shard, delivered: Delivered, producer: TaskProducer | None, attempt: int
) -> dict[str, Any]:
    """The fields of a report about a shard; ``producer`` has sent its rows, or is None."""
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
