"""Wrong versions of both protocols, written by real tasks, with real producers, to real brokers.

They are those that the model finds (``tests.spark.exactly_once.mutants``, ``atomic_mutants``), and
take the place of the right protocol in ``Runner.follow``.
"""

from __future__ import annotations

import pickle
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from kprod.exactly_once.runner import Runner
from kprod.exactly_once.steps import Delivered
from kprod.spark import sharded
from kprod.spark.delivery import Terms
from kprod.spark.job_tasks import OUTCOME_SCHEMA, BatchEnd
from kprod.spark.options import job_options
from kprod.spark.python_worker import this_task
from kprod.spark.shard_rows import TaskRows
from tests.spark.exactly_once.atomic_model import Version
from tests.spark.exactly_once.atomic_mutants import ATOMIC_MUTANTS
from tests.spark.exactly_once.attempts import attempt
from tests.spark.exactly_once.mutants import MUTANTS, Mutant
from tests.spark.exactly_once_kills.jobs import Job

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

RIGHT = "right"


_ONCE = {mutant.name: mutant for mutant in MUTANTS}
_ATOMIC = {version.name: version for version in ATOMIC_MUTANTS}


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

        with attempt(shard, self.options, send_rows) as run:
            delivered = self._deliver(run, max(task.attempt, 0))
        told = pickle.dumps(delivered)
        yield pa.RecordBatch.from_pydict({"outcome": pa.array([told], pa.binary())})

    def _deliver(self, run: Runner, attempt: int) -> Delivered:
        name = self.job.planted or RIGHT
        if self.job.delivery == "atomic":
            version = _ATOMIC.get(name, Version())
            return run.follow(version.prepare(run.shard, attempt, run.patience))
        mutant = _ONCE.get(name, Mutant(RIGHT))
        run.shard = mutant.named(run.shard, attempt)
        return run.follow(mutant.delivers(run.shard, run.patience))


@dataclass(frozen=True, slots=True)
class PlantedEnd:
    """Ends an atomic batch by the version of this name: for ``mapInArrow``."""

    name: str
    end: BatchEnd

    def __call__(self, _: Iterator[Any]) -> Iterator[Any]:
        """Yield nothing."""
        end, version = self.end, _ATOMIC.get(self.name, Version())
        end.follow(lambda patience: version.commit(end.of, end.shards, end.prepared, patience))
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
        ended = spark.range(0, 1, 1, 1).mapInArrow(
            PlantedEnd(job.planted or RIGHT, end), OUTCOME_SCHEMA
        )
        ended.collect()


def _terms(job: Job) -> Terms:
    return Terms(topic=job.topic, job_id=job.topic, is_atomic=job.delivery == "atomic")
