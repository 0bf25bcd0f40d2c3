"""Writes whole Spark partitions to Kafka."""

from __future__ import annotations

import math
import os
import socket
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain
from typing import Any, Literal

from kprod.errors import ConfigError, KprodError, RecordTypeError
from kprod.intake.arguments import check_seconds, check_topic
from kprod.spark.batch_sender import BatchPlan, BatchSender, row_sender
from kprod.spark.exactly_once.placement import Layout, placed_batches, placed_items
from kprod.spark.exactly_once.shard import Terms
from kprod.spark.exactly_once.shard_run import ShardTask
from kprod.spark.executor_producer import lent_producer
from kprod.spark.producer_options import (
    config_of,
    fingerprint_of,
    job_options,
    transactional_options,
)
from kprod.spark.python_worker import acknowledge_at_once, freeze_modules, log_for_spark
from kprod.spark.rate_limit import RateLimit, RateLimiter
from kprod.spark.record_shapes import RecordShapes, as_it_came
from kprod.spark.rejected_rows import RowPolicy
from kprod.spark.row_slices import RowSlices
from kprod.spark.task_identity import this_task
from kprod.spark.task_producer import TaskProducer
from kprod.spark.write_result import COMMITTED, SCHEMA, PartitionReport, as_record_batch
from kprod.spark.writer_options import Delivery, take_writer_options


def partition_writer(
    topic: str | None = None,
    *,
    bootstrap_servers: str | Sequence[str],
    output: Literal["report", "none"] = "report",
    key: str = "key",
    value: str = "value",
    timeout: float | None = None,
    **options: Any,
) -> PartitionWriter:
    """Make a callable that writes every item of a partition to Kafka. It pickles; thread-safe.

    ``topic`` None takes it from each row's ``topic`` column. ``key`` and ``value`` name the columns
    of Rows, dicts and record batches. ``output`` "none" yields no reports. ``timeout`` (seconds)
    bounds the wait for acknowledgements at the end of a partition; default ``delivery_timeout_ms``
    and a margin.

    Further options are those of ``WriterOptions`` (columns, formats, what becomes of rows that are
    no records, ``delivery``) and of ``KafkaProducer``. Texts in the latter may hold ``${env:NAME}``
    or ``${file:PATH:KEY}``, which are looked up on the executor.

    Raises on the driver already: InvalidTopicError; ConfigError for a bad option or one that no
    executor can get, and for ``delivery="atomic"``: no driver commits after an action of Spark's
    own.
    """
    if options.get("delivery") == Delivery.ATOMIC:
        raise ConfigError(
            'delivery="atomic" is for write, foreach_batch and format("kprod"), where a driver'
            ' commits all tasks; partition_writer runs in tasks only: say "exactly_once"'
        )
    return task_writer(
        topic,
        bootstrap_servers=bootstrap_servers,
        output=output,
        key=key,
        value=value,
        timeout=timeout,
        **options,
    )


def task_writer(
    topic: str | None = None,
    *,
    bootstrap_servers: str | Sequence[str],
    output: Literal["report", "none"] = "report",
    key: str = "key",
    value: str = "value",
    timeout: float | None = None,
    **options: Any,
) -> PartitionWriter:
    """As ``partition_writer``, for a driver that ends atomic batches. Raises as that does."""
    if output not in ("report", "none"):
        raise ConfigError(f'output: expected "report" or "none"; got {output!r}')
    try:
        check_seconds("timeout", timeout, math.inf)
    except KprodError:
        raise ConfigError(f"timeout: expected seconds or None; got {timeout!r}") from None
    topic = None if topic is None else check_topic(topic)
    own, rest = take_writer_options(options)
    shipped = job_options({"bootstrap_servers": bootstrap_servers, **rest})
    terms = own.terms(topic)
    if terms is not None:
        shipped = transactional_options(shipped)
    config = config_of(shipped)
    encode_key, encode_value = config.key_serializer is None, config.value_serializer is None
    shapes = RecordShapes(
        topic=topic, key=key, value=value, encode_key=encode_key, encode_value=encode_value
    )
    plan = BatchPlan(
        shapes=replace(shapes, key="key", value="value"),  # their columns have been renamed
        roles=own.roles(key=key, value=value),
        value=own.value(),
        key=own.key(),
        by_row=bool(config.interceptors) or not (encode_key and encode_value),
    )
    return PartitionWriter(
        plan=plan,
        shapes=shapes,
        policy=own.policy(),
        limit=RateLimit(),
        reports=output == "report",
        timeout=timeout,
        options=shipped,
        fingerprint=fingerprint_of(shipped),
        terms=terms,
    )


Sender = Callable[[TaskProducer, RateLimiter | None], Callable[[Iterable[Any]], None]]
Placed = Callable[[Iterable[Any], int], tuple[Layout | None, Iterator[Any]]]


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionWriter:
    """For ``rdd.mapPartitions``, ``foreachPartition``, and ``df.mapInArrow`` with ``schema``.

    A call writes the whole partition before it returns, with the producer of its worker process,
    and returns only when every record is acknowledged: otherwise it raises, the task fails, and
    Spark decides about another attempt, which sends the partition again from its first row (at
    least once). With ``terms`` each partition is written in a transaction, once. Immutable.
    """

    plan: BatchPlan  # of record batches
    shapes: RecordShapes  # of everything else
    policy: RowPolicy
    limit: RateLimit  # of one task
    reports: bool
    timeout: float | None
    options: Mapping[str, Any] = field(repr=False)  # may hold passwords
    fingerprint: str = field(repr=False)
    terms: Terms | None = None  # of exactly once

    @property
    def schema(self) -> str:
        """The reports' columns as Spark DDL, to pass to ``df.mapInArrow``."""
        return SCHEMA

    def __call__(self, items: Iterable[Any]) -> Any:
        """Write ``items``; return an iterator over the report, if there is one.

        It is a one-row ``pyarrow.RecordBatch`` when the items are record batches, else a dict. An
        empty partition has none. Raises DeliveryError (records not acknowledged), RecordTypeError
        (an item that is no record), and what ``KafkaProducer.send`` raises.
        """
        remaining = iter(items)
        try:
            first = next(remaining)
        except StopIteration:
            return iter(())
        everything = chain((first,), remaining)
        arrow = _is_record_batch(first)
        report = self.write_batches(everything) if arrow else self.write_items(everything)
        if not self.reports:
            return iter(())
        return iter((as_record_batch(report) if arrow else report.as_dict(),))

    def write_batches(self, batches: Iterable[Any]) -> PartitionReport:
        """Write all rows of the record batches. Raises as a call."""
        return self._write(batches, self._sender, placed_batches)

    def _sender(
        self, producer: TaskProducer, limiter: RateLimiter | None
    ) -> Callable[[Iterable[Any]], None]:
        return BatchSender(self.plan, producer, limiter).send_all

    def write_items(self, items: Iterable[Any]) -> PartitionReport:
        """Write Rows, dicts, tuples, bytes or text. Raises as a call."""
        return self._write(items, self._item_sender, placed_items)

    def _item_sender(
        self, producer: TaskProducer, limiter: RateLimiter | None
    ) -> Callable[[Iterable[Any]], None]:
        rejected = producer.rejected
        if rejected is None and limiter is None and not self.plan.by_row:
            return RowSlices(self.shapes, producer).send_all
        send, read = row_sender(producer, limiter), self.shapes.reader()

        def send_all(items: Iterable[Any]) -> None:
            for arguments in map(read, items):
                send(*arguments)

        def send_those_that_can_be(items: Iterable[Any]) -> None:
            for item in items:
                try:
                    arguments = read(item)
                except RecordTypeError as error:
                    rejected.take(as_it_came(item), error)  # type: ignore[union-attr]
                else:
                    send(*arguments)

        return send_all if rejected is None else send_those_that_can_be

    def _write(
        self,
        items: Iterable[Any],
        sender: Sender,
        placed: Placed,
    ) -> PartitionReport:
        acknowledge_at_once()
        freeze_modules()
        log_for_spark()
        if self.terms is None:
            return self._write_all(items, sender)
        remaining = iter(items)
        for first in remaining:
            layout, placed_rows = placed(chain((first,), remaining), this_task().partition)
            return self._write_once(self.terms, layout, placed_rows, sender)
        return replace(_nothing(), delivered=COMMITTED)  # no rows: none can be there twice

    def _write_once(
        self, terms: Terms, layout: Layout | None, items: Iterable[Any], sender: Sender
    ) -> PartitionReport:
        limiter = None if self.limit.is_unlimited else RateLimiter(self.limit)
        waiting = _Waiting()

        def send(producer: Any, ticking: Iterable[Any]) -> None:
            sender(producer, limiter)(ticking)

        report = ShardTask(
            terms=terms,
            task=this_task(),
            options=self.options,
            timeout=self.timeout,
            policy=self.policy,
        ).write(layout, waiting.for_each(items), send)
        return replace(report, input_seconds=waiting.seconds)

    def _write_all(self, items: Iterable[Any], sender: Sender) -> PartitionReport:
        started = time.monotonic()
        limiter = None if self.limit.is_unlimited else RateLimiter(self.limit)
        waiting = _Waiting()
        with lent_producer(self.fingerprint, self.options, self.timeout, self.policy) as producer:
            # Row by row, two looks at a clock would cost more than they tell.
            watched = waiting.for_each(items) if sender == self._sender else items
            sender(producer, limiter)(watched)
        return _report(producer, time.monotonic() - started, waiting.seconds)


class _Waiting:
    """The time an iterator takes for its items."""

    def __init__(self) -> None:
        self.seconds = 0.0

    def for_each(self, items: Iterable[Any]) -> Iterator[Any]:
        remaining = iter(items)
        while True:
            started = time.monotonic()
            try:
                item = next(remaining)
            except StopIteration:
                return
            finally:
                self.seconds += time.monotonic() - started
            yield item


def _is_record_batch(item: Any) -> bool:
    # By name: rows and tuples are written without pyarrow being there at all.
    return type(item).__name__ == "RecordBatch" and type(item).__module__.startswith("pyarrow")


def _nothing() -> PartitionReport:
    task = this_task()
    return PartitionReport(
        task=task.partition,
        attempt=task.attempt,
        records=0,
        bytes=0,
        retries=0,
        seconds=0.0,
        host=socket.gethostname(),
        pid=os.getpid(),
        offsets=[],
    )


def _report(producer: TaskProducer, seconds: float, input_seconds: float) -> PartitionReport:
    task, rejected = this_task(), producer.rejected
    return PartitionReport(
        task=task.partition,
        attempt=task.attempt,
        records=producer.outcomes.records,
        bytes=producer.outcomes.bytes,
        retries=producer.retries,
        seconds=seconds,
        host=socket.gethostname(),
        pid=os.getpid(),
        offsets=[*producer.outcomes.ranges(), *producer.dead_letters.ranges()],
        input_seconds=input_seconds,
        flush_seconds=producer.flush_seconds,
        skipped=0 if rejected is None else rejected.skipped,
        dead_letters=0 if rejected is None else rejected.dead_letters,
        reasons=[] if rejected is None else rejected.reasons(),
    )
