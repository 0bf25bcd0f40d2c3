"""The writers behind ``format("kprod")``: batch and streaming, from Arrow."""

from __future__ import annotations

import logging
import uuid
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from pyspark.sql import datasource
from pyspark.sql.datasource import (
    DataSourceArrowWriter,
    DataSourceStreamWriter,
    WriterCommitMessage,
)
from pyspark.sql.types import StructType

from kprod.errors import ConfigError
from kprod.spark.atomic_batch import abort_batch, commit_batch, end_here
from kprod.spark.exactly_once.terms import Scope
from kprod.spark.schema_check import check_schema
from kprod.spark.sharded import check_placed
from kprod.spark.source_options import source_writer
from kprod.spark.task_outcome import JobTask, TaskOutcome
from kprod.spark.write import raise_failure
from kprod.spark.write_result import write_result

_log = logging.getLogger(__name__)

# Spark 4.0 has no Arrow writer for streams: there their rows come one by one.
STREAMS_ARROW = hasattr(datasource, "DataSourceStreamArrowWriter")
StreamWriter: Any = getattr(datasource, "DataSourceStreamArrowWriter", DataSourceStreamWriter)


@dataclass
class Written(WriterCommitMessage):
    """What one task tells the driver."""

    outcome: TaskOutcome


class BatchWriter(DataSourceArrowWriter):
    """Writes the partitions of one batch job. Made on the driver, runs on the executors."""

    def __init__(self, task: JobTask) -> None:
        self._task = task

    def write(self, iterator: Iterator[Any]) -> Written:
        """Write one partition. Raises what is worth another attempt."""
        return Written(self._task.run(iterator))

    def commit(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        """All tasks have ended: an atomic batch is committed.

        Raises WriteFailed when a task has failed for good, or the batch was not committed.
        """
        _commit(self._task, messages, f"batch job {self._task.job}")

    def abort(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        """The job has failed: what is in the topic stays there, as with Spark's own sink.

        An atomic batch is aborted; one that is decided is committed.
        """
        abort_batch(self._task.writer, _outcomes(messages), end_here)


class MicroBatchWriter(StreamWriter):  # type: ignore[misc]
    """Writes the partitions of micro-batches. Made anew for each of them."""

    def __init__(self, task: JobTask) -> None:
        self._task = task

    def write(self, iterator: Iterator[Any]) -> Written:
        """Write one partition of a micro-batch. Raises what is worth another attempt."""
        task = self._task
        if STREAMS_ARROW:
            return Written(task.run(iterator))
        return Written(task.run_rows(iterator))

    def commit(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:
        """The micro-batch is written; it may come again after a restart, and so may this call.

        With ``delivery="exactly_once"`` its tasks have committed all of it, and nothing is left.
        With ``delivery="atomic"`` it is committed now.

        Raises WriteFailed when a task has failed for good, or an atomic batch was not committed:
        that ends the query, and it goes on with this micro-batch when it is started again.
        """
        _commit(self._task, messages, f"micro-batch {batchId}")

    def abort(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:
        """The micro-batch has failed: as ``BatchWriter.abort``."""
        abort_batch(self._task.writer, _outcomes(messages), end_here)


def batch_writer(options: Mapping[str, str], schema: StructType, overwrite: bool) -> BatchWriter:
    """For ``df.write.format("kprod")``. Raises ConfigError and SchemaError, on the driver."""
    if overwrite:
        raise ConfigError('a topic cannot be overwritten: use mode("append")')
    return BatchWriter(_task(options, schema, Scope.CALL))


def stream_writer(options: Mapping[str, str], schema: StructType) -> MicroBatchWriter:
    """For ``df.writeStream.format("kprod")``, output modes append and complete.

    Raises ConfigError and SchemaError, on the driver.
    """
    return MicroBatchWriter(_task(options, schema, Scope.QUERY))


def _outcomes(messages: Sequence[WriterCommitMessage | None]) -> list[TaskOutcome]:
    return [message.outcome for message in messages if isinstance(message, Written)]


def _commit(task: JobTask, messages: Sequence[WriterCommitMessage | None], what: str) -> None:
    """Commit an atomic batch, and log what the tasks wrote. Raises WriteFailed."""
    outcomes = commit_batch(task.writer, _outcomes(messages), end_here)
    reports = [found.report for found in outcomes if found.report is not None]
    seconds = max((report.seconds for report in reports), default=0.0)
    result = write_result(reports, seconds)
    _log.info("%s: %s", what, result)
    raise_failure(outcomes, result)


def _task(options: Mapping[str, str], schema: StructType, scope: Scope) -> JobTask:
    writer = source_writer(options)
    if writer.terms is not None:
        writer = replace(writer, terms=replace(writer.terms, scope=scope))
        check_placed(writer.terms, schema)
    check_schema(schema, writer)
    return JobTask(writer=writer, job=uuid.uuid4().hex)
