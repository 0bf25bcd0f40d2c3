"""What runs inside a Spark task: record batches as ``mapInArrow`` hands them over, to Kafka.

No Spark is started: what its Java side and the pipe to the worker cost is the same for all.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from importlib.util import find_spec
from typing import Any

from benchmarks.rivals.client import Client
from benchmarks.rivals.confluent_client import POLL_EVERY, Confluent
from benchmarks.rivals.settings import TOPIC, Settings

BATCH_ROWS = 10_000
"""Rows of a record batch: what ``spark.sql.execution.arrow.maxRecordsPerBatch`` is by default."""

Write = Callable[[Iterable[Any]], Iterator[Any]]


def _record_batches(values: Sequence[bytes], keys: Sequence[bytes] | None) -> list[Any]:
    """Columns as Spark types them: text keys and binary values."""
    import pyarrow

    columns = {"value": pyarrow.array(values, pyarrow.binary())}
    if keys is not None:
        columns["key"] = pyarrow.array([key.decode() for key in keys], pyarrow.string())
    whole = pyarrow.record_batch(columns)
    return [whole.slice(at, BATCH_ROWS) for at in range(0, len(values), BATCH_ROWS)]


class _Task(Client):
    @classmethod
    def exists(cls) -> bool:
        """See Client."""
        return bool(find_spec("pyspark") and find_spec("pyarrow"))

    def prepare(self, values: Sequence[bytes], keys: Sequence[bytes] | None) -> None:
        """See Client."""
        super().prepare(values, keys)
        self._batches = _record_batches(values, keys)


class KprodTask(_Task):
    """``kprod.spark.partition_writer``, called as Spark calls it."""

    TOPIC: str | None = TOPIC

    def __init__(self, settings: Settings) -> None:
        from kprod.spark import partition_writer

        super().__init__(settings)
        options: dict[str, Any] = {"compression_type": settings.compression}
        if settings.level is not None:
            options["compression_level"] = settings.level
        self._write: Write = partition_writer(
            self.TOPIC,
            bootstrap_servers=settings.bootstrap_servers,
            linger_ms=settings.linger_ms,
            batch_size=settings.batch_size,
            **options,
        )

    def send(self) -> None:
        """See Client."""
        (report,) = self._write(iter(self._batches))
        assert report.to_pylist()[0]["records"] == len(self.values)

    def close(self) -> None:
        """See Client. The producer is the process's own: left open, it looks for the sink."""
        from kprod.spark.executor_producer import process_cache

        process_cache().close()


class KprodTaskByRow(KprodTask):
    """The same with a column of topics: then every row has to be looked at."""

    TOPIC = None

    def prepare(self, values: Sequence[bytes], keys: Sequence[bytes] | None) -> None:
        """See Client."""
        import pyarrow

        super().prepare(values, keys)
        self._batches = [
            batch.append_column("topic", pyarrow.repeat(TOPIC, batch.num_rows))
            for batch in self._batches
        ]


class ConfluentTask(_Task, Confluent):
    """The columns as lists, and ``produce`` with a callback for each of their rows."""

    def _produce(self, **options: Any) -> None:
        produce, poll = self._producer.produce, self._producer.poll
        for batch in self._batches:
            columns = [batch.column(name).to_pylist() for name in batch.schema.names]
            for number, cells in enumerate(zip(*columns, strict=True)):
                produce(TOPIC, *cells, **options)
                if number % POLL_EVERY == 0:
                    poll(0)
