"""Writes whole Spark partitions to Kafka."""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from typing import Any, Literal

from pyspark import TaskContext

from kprod.config import ProducerConfig
from kprod.errors import ConfigError
from kprod.spark.arrow_columns import read_batch
from kprod.spark.direct_columns import FEW_ROWS, direct_columns
from kprod.spark.executor_producer import lent_producer
from kprod.spark.partition_report import SCHEMA, PartitionReport, as_record_batch
from kprod.spark.producer_options import fingerprint_of, job_options
from kprod.spark.record_shapes import RecordShapes
from kprod.spark.task_producer import TaskProducer


def partition_writer(
    topic: str | None = None,
    *,
    bootstrap_servers: str | Sequence[str],
    output: Literal["report", "none"] = "report",
    key: str = "key",
    value: str = "value",
    timeout: float | None = None,
    **producer_options: Any,
) -> PartitionWriter:
    """Make a callable that writes every item of a partition to Kafka. It pickles; thread-safe.

    ``topic`` None takes it from each row's ``topic`` column. ``key`` and ``value`` name the columns
    of Rows, dicts and record batches. ``output`` "none" yields no reports. ``timeout`` (seconds)
    bounds the wait for acknowledgements at the end of a partition; default ``delivery_timeout_ms``
    and a margin. Further options are those of ``KafkaProducer``.

    Raises ConfigError, on the driver already, for a bad option or one that no executor can get.
    """
    if output not in ("report", "none"):
        raise ConfigError(f'output: expected "report" or "none"; got {output!r}')
    options = job_options({"bootstrap_servers": bootstrap_servers, **producer_options})
    config = ProducerConfig.from_options(options)
    serializers = config.key_serializer, config.value_serializer
    return PartitionWriter(
        shapes=RecordShapes(
            topic=topic,
            key=key,
            value=value,
            encode_key=config.key_serializer is None,
            encode_value=config.value_serializer is None,
        ),
        by_row=topic is None or bool(config.interceptors) or serializers != (None, None),
        reports=output == "report",
        timeout=timeout,
        options=options,
        fingerprint=fingerprint_of(options),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionWriter:
    """For ``rdd.mapPartitions``, ``foreachPartition``, and ``df.mapInArrow`` with ``schema``.

    A call writes the whole partition before it returns, with the producer of its worker process,
    and returns only when every record is acknowledged: otherwise it raises, the task fails, and
    Spark decides about another attempt, which sends the partition again from its first row (at
    least once). Immutable.
    """

    shapes: RecordShapes
    by_row: bool  # each row is to be looked at: for its topic, or by code of the application
    reports: bool
    timeout: float | None
    options: Mapping[str, Any] = field(repr=False)  # may hold passwords
    fingerprint: str = field(repr=False)

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
        report = self._write(self._send_batches if arrow else self._send_items, everything)
        if not self.reports:
            return iter(())
        return iter((as_record_batch(report) if arrow else report.as_dict(),))

    def _write(
        self, send_all: Callable[[TaskProducer, Iterable[Any]], None], items: Iterable[Any]
    ) -> PartitionReport:
        started = time.monotonic()
        with lent_producer(self.fingerprint, self.options, self.timeout) as producer:
            send_all(producer, items)
        return _report(producer, time.monotonic() - started)

    def _send_items(self, producer: TaskProducer, items: Iterable[Any]) -> None:
        send = producer.send
        for arguments in map(self.shapes.read, items):
            send(*arguments)

    def _send_batches(self, producer: TaskProducer, batches: Iterable[Any]) -> None:
        topic = None if self.by_row else self.shapes.topic
        for batch in batches:
            columns = None
            if topic is not None and batch.num_rows >= FEW_ROWS:
                columns = direct_columns(batch, self.shapes)
            if topic is not None and columns is not None:
                producer.send_batch(topic, batch, columns)
                continue
            for arguments in read_batch(batch, self.shapes):
                producer.send(*arguments)


def _is_record_batch(item: Any) -> bool:
    # By name: rows and tuples are written without pyarrow being there at all.
    return type(item).__name__ == "RecordBatch" and type(item).__module__.startswith("pyarrow")


def _report(producer: TaskProducer, seconds: float) -> PartitionReport:
    context = TaskContext.get()
    return PartitionReport(
        task=context.partitionId() if context else -1,
        attempt=context.attemptNumber() if context else -1,
        records=producer.outcomes.records,
        bytes=producer.outcomes.bytes,
        retries=producer.retries,
        seconds=seconds,
        host=socket.gethostname(),
        pid=os.getpid(),
        offsets=producer.outcomes.ranges(),
    )
