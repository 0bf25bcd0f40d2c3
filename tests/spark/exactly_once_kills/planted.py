"""Wrong versions of both protocols, written by real tasks, with real producers, to real brokers.

They are those that the model finds (``tests.spark.exactly_once.bugs``).
"""

from __future__ import annotations

import pickle
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from kprod.exactly_once import atomic, protocol
from kprod.exactly_once.steps import Delivered
from kprod.spark import sharded
from kprod.spark.delivery import Terms
from kprod.spark.job_tasks import OUTCOME_SCHEMA, BatchEnd
from kprod.spark.options import job_options
from kprod.spark.python_worker import this_task
from kprod.spark.shard_rows import TaskRows
from tests.spark.exactly_once.attempts import attempt
from tests.spark.exactly_once.bugs import ATOMIC, ONCE
from tests.spark.exactly_once_kills.jobs import Job
from tests.support.planted import Bug

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


def _bug(job: Job) -> Bug:
    found = ATOMIC if job.delivery == "atomic" else ONCE
    return next((bug for bug in found if bug.name == job.planted), Bug("none", 0))


@dataclass(frozen=True, slots=True)
class PlantedTask:
    """Writes a shard by the version of this name: for ``mapInArrow``."""

    job: Job
    options: dict[str, Any]

    def __call__(self, batches: Iterator[Any]) -> Iterator[Any]:
        """Yield one row: the pickled ``Delivered``."""
        import pyarrow as pa

        if (first := next(batches, None)) is None:
            return
        task = this_task()
        rows = TaskRows([first, *batches])
        shard = _terms(self.job).shard(task, rows.place(task.partition))
        found = list(rows.each())

        def send_rows(producer: Any) -> None:
            for batch in found:
                for row in batch.to_pylist():
                    producer.send(self.job.topic, row["value"].encode(), row["key"].encode())

        with attempt(shard, self.options, send_rows) as run, _bug(self.job).planted():
            steps = (
                atomic.prepare(shard, max(task.attempt, 0), run.patience)
                if self.job.delivery == "atomic"
                else protocol.deliver(shard, run.patience)
            )
            delivered: Delivered = run.follow(steps)
        told = pickle.dumps(delivered)
        yield pa.RecordBatch.from_pydict({"outcome": pa.array([told], pa.binary())})


@dataclass(frozen=True, slots=True)
class PlantedEnd:
    """Ends an atomic batch by the version of this name: for ``mapInArrow``."""

    job: Job
    end: BatchEnd

    def __call__(self, _: Iterator[Any]) -> Iterator[Any]:
        """Yield nothing."""
        with _bug(self.job).planted():
            self.end.commit()
        yield from ()


def write_wrongly(spark: SparkSession, frame: DataFrame, job: Job) -> None:
    """Write a batch job by its planted version, or the right one under that name."""
    options = job_options(
        {
            "bootstrap_servers": job.servers,
            "transaction_timeout_ms": job.transaction_timeout_ms,
        },
        transactional=True,
    )
    placed = sharded(frame, job.shards, by="key")
    rows = placed.mapInArrow(PlantedTask(job, options), OUTCOME_SCHEMA).collect()
    delivered: list[Delivered] = [pickle.loads(bytes(row["outcome"])) for row in rows]
    prepared = tuple(one.prepared for one in delivered if one.prepared is not None)
    if job.delivery == "atomic" and prepared:
        end = BatchEnd(
            of=replace(prepared[0].shard, attempt=None),
            shards=job.shards,
            prepared=prepared,
            options=options,
        )
        spark.range(0, 1, 1, 1).mapInArrow(PlantedEnd(job, end), OUTCOME_SCHEMA).collect()


def _terms(job: Job) -> Terms:
    return Terms(topic=job.topic, job_id=job.topic, is_atomic=job.delivery == "atomic")
