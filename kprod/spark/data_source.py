"""The options and writers of ``format("kprod")``: batch and streaming, from Arrow."""

from __future__ import annotations

import json
import logging
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from pyspark.sql.datasource import (
    DataSourceArrowWriter,
    DataSourceStreamWriter,
    WriterCommitMessage,
)
from pyspark.sql.types import StructType

from kprod.config.option import plain_name
from kprod.config.reading import from_text
from kprod.errors import ConfigError
from kprod.schema.bounded_cache import BoundedCache
from kprod.schema.errors import RegistryError
from kprod.spark.delivery import Scope
from kprod.spark.job_tasks import (
    JobTask,
    TaskOutcome,
    abort_batch,
    commit_batch,
    end_here,
    raise_failure,
)
from kprod.spark.options import (
    OF_THE_WRITER,
    PREFIX,
    concealed_source,
    fingerprint_of,
    producer_option,
)
from kprod.spark.partition_writer import PartitionWriter, task_writer
from kprod.spark.payload_options import SCHEMAS
from kprod.spark.python_worker import freeze_modules, log_for_spark
from kprod.spark.schema_check import check_schema
from kprod.spark.sharded import check_placed
from kprod.spark.write_result import write_result

COLUMN = "columns."
SPARKS_OWN = frozenset({"path", "checkpointlocation", "queryname", "includeheaders"})
"""Options that Spark passes to every sink, and those of its Kafka format that are for sources."""

NO_BROKERS = (
    "kafka.bootstrap.servers: the option is missing. (Spark does not pass the OPTIONS of a table"
    ' to Python data sources. Instead of INSERT INTO, use df.write.format("kprod").options(...)'
    '.mode("append").save(), or kprod.spark.write)'
)

RATES = ("maxrecordspersecond", "maxbytespersecond", "repartition")
PLACES = ("shards", "shardby")
OWN = {name.replace("_", ""): name for name in sorted(OF_THE_WRITER - {"columns", "key", "value"})}


def source_writer(options: Mapping[str, str]) -> PartitionWriter:
    """The writer that the options describe. The case of their names does not matter.

    ``kafka.bootstrap.servers`` and other ``kafka.*`` are options of the producer. ``topic``
    overrides the column. ``columns.value`` and so on are names of columns. The options of
    ``WriterOptions`` are written ``valueFormat``, ``onRowError`` and so on. Raises ConfigError for
    unknown options.
    """
    options = concealed_source(options)
    producer: dict[str, Any] = {}
    own: dict[str, Any] = {}
    columns: dict[str, str] = {}
    for given, text in options.items():
        name = given.lower()
        if plain_name(name) in ("kafka_key_serializer", "kafka_value_serializer"):
            raise ConfigError(
                f"{given} is not supported: keys and values are binary or string columns. Set"
                ' valueFormat to "json" or "avro", or create the bytes in the DataFrame'
            )
        if name.startswith(PREFIX):
            producer[producer_option(name)] = from_text(given[len(PREFIX) :], text)
        elif name.startswith(COLUMN):
            columns[name[len(COLUMN) :]] = text
        elif (own_name := _own_name(given)) is not None:
            own[own_name] = NUMBERS[own_name](given, text) if own_name in NUMBERS else text
        elif name == "topic":
            own[name] = text
        elif name not in SPARKS_OWN:
            raise _unknown(given)
    if "bootstrap_servers" not in producer:
        raise ConfigError(NO_BROKERS)
    return task_writer(columns=columns, **own, **producer)


def _unknown(given: str) -> ConfigError:
    if given.lower().replace("_", "") in PLACES:
        return ConfigError(
            f"{given}: a data source cannot move rows: call kprod.spark.sharded(df, shards=8)"
        )
    if given.lower().replace("_", "") in RATES:
        return ConfigError(
            f"{given}: a data source does not support this option: use kprod.spark.write or"
            " kprod.spark.foreach_batch"
        )
    return ConfigError(
        f"unknown option {given!r}; producer options begin with kafka., the others are:"
        f" topic, columns.ROLE, {', '.join(map(_camel, sorted(OWN.values())))}"
    )


def _camel(name: str) -> str:
    first, *rest = name.split("_")
    return first + "".join(map(str.title, rest))


def _whole(name: str, text: str) -> int:
    try:
        return int(text)
    except ValueError:
        raise ConfigError(f"{name}: expected a whole number; got {text!r}") from None


def _seconds(name: str, text: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise ConfigError(f"{name}: expected a number of seconds; got {text!r}") from None


NUMBERS: Mapping[str, Callable[[str, str], float]] = {
    "schema_id": _whole,
    "max_row_errors": _whole,
    "timeout": _seconds,
}


_log = logging.getLogger(__name__)


class BatchWriter(DataSourceArrowWriter):
    """Writes the partitions of one batch job. Created on the driver; runs on the executors."""

    def __init__(self, task: JobTask) -> None:
        self._task = task

    def write(self, iterator: Iterator[Any]) -> TaskOutcome:
        """Write one partition of a batch. Raises if another attempt may succeed."""
        return self._task.run(iterator)

    def commit(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        """Commit an atomic batch, now that all tasks have ended.

        Raises WriteFailed if a task has failed permanently, or the batch was not committed.
        """
        _commit(self._task, messages, f"batch job {self._task.job}")

    def abort(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        """Clean up after a failed job. Its records stay in the topic, as with Spark's own sink.

        Transactions that tasks have left open are aborted, and so is an atomic batch. If the commit
        decision of the batch is already stored, the batch is committed instead.
        """
        abort_batch(self._task.writer, _outcomes(messages), end_here)


# Spark passes Arrow batches to every DataSourceArrowWriter, also in streams; Spark 4.0 has no
# DataSourceStreamArrowWriter. The two classes have different signatures of commit and abort.
_BatchWriter: Any = BatchWriter


class MicroBatchWriter(_BatchWriter, DataSourceStreamWriter):  # type: ignore[misc]
    """Writes the partitions of micro-batches. Spark creates a new one for each micro-batch."""

    def __init__(self, task: JobTask, checkpoint: str | None, failure: Any = None) -> None:
        """``failure``: why the registry did not return the schema that the tasks need."""
        super().__init__(task)
        self._checkpoint = checkpoint
        self._failure = failure

    def __getstate__(self) -> Any:
        """Spark pickles a writer for the tasks, but not to commit. Raises the ``failure``."""
        if self._failure is not None:
            raise self._failure
        return self.__dict__

    def commit(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:
        """Complete a micro-batch. After a restart, Spark may repeat the micro-batch and this call.

        With ``delivery="exactly_once"``, the tasks have already committed everything. With
        ``delivery="atomic"``, this call commits the micro-batch.

        Raises WriteFailed if a task has failed permanently, or an atomic batch was not committed.
        The exception ends the query. When the query is started again, it continues with this
        micro-batch.
        """
        _commit(self._task, messages, f"micro-batch {batchId}")

    def abort(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:
        """Do as ``BatchWriter.abort`` for a micro-batch that failed, or whose query was stopped."""
        writer = self._task.writer
        if writer.terms is not None:
            query = query_of(self._checkpoint)
            writer = replace(writer, terms=replace(writer.terms, query=query, batch=batchId))
        abort_batch(writer, _outcomes(messages), end_here)


def batch_writer(options: Mapping[str, str], schema: StructType, overwrite: bool) -> BatchWriter:
    """The writer of ``df.write.format("kprod")``. Raises ConfigError and SchemaError."""
    options = concealed_source(options)
    if overwrite:
        raise ConfigError('a topic cannot be overwritten: use mode("append")')
    return BatchWriter(_task(source_writer(options), schema, Scope.CALL))


def stream_writer(options: Mapping[str, str], schema: StructType) -> MicroBatchWriter:
    """The writer of ``df.writeStream.format("kprod")``, for the modes append and complete.

    Spark calls this function for each micro-batch, and once more in another process to commit it.
    Only the first call with these options in a process asks the schema registry, whose errors are
    raised when the writer is pickled. Raises ConfigError and SchemaError, on the driver.
    """
    options = concealed_source(options)
    name, failure = fingerprint_of(options), None
    writer = _of_streams.get(name)
    if writer is None:
        try:
            writer = source_writer(options)
            _of_streams.put(name, writer)
        except RegistryError as error:
            failure = error
            writer = source_writer(
                {n: text for n, text in options.items() if _own_name(n) not in OF_SCHEMAS}
            )
    given = {name.lower(): text for name, text in options.items()}
    task = _task(writer, None if failure else schema, Scope.QUERY)
    return MicroBatchWriter(task, given.get("checkpointlocation"), failure)


def _own_name(given: str) -> str | None:
    return OWN.get(given.lower().replace("_", ""))


OF_SCHEMAS = {"value_format", "schema_registry", "subject", *SCHEMAS.values()}
MOST_STREAMS = 64
_of_streams: BoundedCache[str, PartitionWriter] = BoundedCache(MOST_STREAMS)


def query_of(checkpoint: str | None) -> str | None:
    """The id of the query with this checkpoint; None if this process cannot read the checkpoint.

    Spark passes the id to tasks, but not to writers on the driver.
    """
    if checkpoint is None:
        return None
    from pyarrow.fs import FileSystem, LocalFileSystem

    scheme, _, path = checkpoint.rpartition(":")
    try:
        if scheme in ("", "file"):
            system = LocalFileSystem()
        else:
            system, path = FileSystem.from_uri(checkpoint.replace("s3a:", "s3:", 1))
        with system.open_input_stream(f"{path}/metadata") as file:
            found: str = json.loads(file.read())["id"]
    except (OSError, ValueError, KeyError) as error:
        _log.warning(
            "cannot read the id of the query from the checkpoint %s: %s", checkpoint, error
        )
        return None
    return found


def _outcomes(messages: Sequence[WriterCommitMessage | None]) -> list[TaskOutcome]:
    return [message for message in messages if isinstance(message, TaskOutcome)]


def _commit(task: JobTask, messages: Sequence[WriterCommitMessage | None], what: str) -> None:
    """Commit an atomic batch, and log what the tasks wrote. Raises WriteFailed."""
    log_for_spark()
    outcomes = commit_batch(task.writer, _outcomes(messages), end_here)
    reports = [found.report for found in outcomes if found.report is not None]
    seconds = max((report.seconds for report in reports), default=0.0)
    result = write_result(reports, seconds)
    _log.info("%s: %s", what, result)
    raise_failure(outcomes, result)


def _task(writer: PartitionWriter, schema: StructType | None, scope: Scope) -> JobTask:
    """The task of a writer. Raises ConfigError and SchemaError, unless ``schema`` is None."""
    writer = writer.named(scope)
    if schema is not None:
        check_placed(writer.terms, schema)
        check_schema(schema, writer)
    freeze_modules()
    return JobTask(writer=writer, job=uuid.uuid4().hex)
