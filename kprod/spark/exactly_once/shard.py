"""A shard: the rows of one task, under a name that every attempt derives from job and batch."""

from __future__ import annotations

import enum
import uuid
from dataclasses import dataclass, field, fields
from functools import partial
from typing import Any, NamedTuple

from kprod.errors import ConfigError
from kprod.intake.arguments import check_topic
from kprod.spark.exactly_once.placement import Layout
from kprod.spark.task_identity import NO_TASK, TaskIdentity
from kprod.types import TopicPartition

MARKER_PARTITION = 0
"""Every topic has it, however many partitions are added: a marker must be found again."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Shard:
    """``number`` of the shards of ``batch`` of the job that is called ``job``. Immutable.

    ``shards`` is how many the batch has; None where one Spark job writes all of it, as the number
    of its tasks cannot change. ``topic`` is the one that markers are committed for. ``run`` tells
    one start of the job from the next.
    """

    prefix: str
    job: str
    number: int
    batch: int
    shards: int | None
    topic: str
    run: str = ""
    attempt: int | None = None
    """With ``delivery="atomic"`` each attempt has a transactional id of its own."""

    @property
    def transactional_id(self) -> str:
        """The id of the producer that writes the shard: a new attempt fences the others."""
        attempt = "" if self.attempt is None else f"/{self.attempt}"
        return f"{self.job_name}.{self.number}{attempt}"

    @property
    def group(self) -> str:
        """The consumer group with the committed offset that is the shard's marker."""
        return self.transactional_id

    @property
    def job_name(self) -> str:
        """The common beginning of the names of the job's shards."""
        return f"{self.prefix}.{self.job}"

    @property
    def layout_id(self) -> str:
        """The group that says how many shards a batch has, and the id that it is written with.

        A word is behind the last dot where shards have a number: the layout of the job "a.1" is no
        shard of the job "a".
        """
        return f"{self.job_name}.layout"

    @property
    def place(self) -> TopicPartition:
        """The partition that the groups commit their offsets for."""
        return TopicPartition(self.topic, MARKER_PARTITION)

    def __str__(self) -> str:
        of = "" if self.shards is None else f" of {self.shards}"
        return f"shard {self.number}{of} of batch {self.batch} of {self.job_name!r}"


PREFIX = "kprod-spark"
LONGEST = 200
UNPLACED = (
    'delivery="exactly_once" and "atomic" need to know the shards of this job: its batches may be'
    " written again by a later start, with other tasks. Say shards=8 where there is such an option;"
    ' for format("kprod") and partition_writer write kprod.spark.sharded(df, 8)'
)

NAMELESS = (
    'delivery="exactly_once" and "atomic" need a name for a micro-batch, which may come again after'
    " a restart: write it by kprod.spark.foreach_batch, which knows its query, or give a job_id"
)


class Scope(enum.Enum):
    """The scope of a job name that kprod has made."""

    CALL = enum.auto()  # one call that runs one Spark job
    STAGE = enum.auto()  # a callable: each stage that runs it writes anew
    QUERY = enum.auto()  # a streaming query: each batch comes once


class JobName(NamedTuple):
    """``lasting``: another Spark job may come with the same name and batch, and be a replay."""

    job: str
    batch: int
    lasting: bool


def _fresh() -> str:
    return uuid.uuid4().hex


@dataclass(frozen=True, slots=True, kw_only=True)
class Terms:
    """The terms of ``delivery="exactly_once"`` or ``"atomic"`` (``is_atomic``). Immutable; pickles.

    ``topic`` is the one that markers are committed for. ``job_id`` is the user's. ``query`` and
    ``batch`` are a stream's, where the driver knows them; else a task asks Spark. ``fresh`` is the
    name where nobody gives one.
    """

    topic: str
    prefix: str = PREFIX
    job_id: str | None = None
    scope: Scope = Scope.STAGE
    query: str | None = None
    batch: int | None = None
    is_atomic: bool = False
    fresh: str = field(default_factory=_fresh)

    def __reduce__(self) -> tuple[Any, ...]:
        """A callable gets another fresh name whenever the driver ships it.

        Stages are counted from 0 in each Spark context, and tasks of RDDs are not told which one
        they belong to: under one name a second context would find everything already written.
        """
        values = {one.name: getattr(self, one.name) for one in fields(self)}
        if self.scope is Scope.STAGE:
            values["fresh"] = _fresh()
        return partial(Terms, **values), ()

    def job_name(self, task: TaskIdentity) -> JobName:
        """The name of what ``task`` is a part of. Raises ConfigError where there is none."""
        batch = task.batch if self.batch is None else self.batch
        if self.scope is Scope.CALL and self.job_id is None and self.batch is None:
            if batch is not None:
                raise ConfigError(NAMELESS)
            return JobName(self.fresh, 0, lasting=False)
        if batch is not None:
            return JobName(self._of_stream(task), batch, lasting=True)
        if self.job_id is not None:
            return JobName(self.job_id, 0, lasting=True)
        if self.scope is Scope.QUERY:
            raise ConfigError("Spark does not tell which batch of which query this task belongs to")
        return JobName(f"{self.fresh}.{task.stage}", 0, lasting=False)

    @property
    def is_lasting(self) -> bool:
        """As far as the driver knows: see ``JobName``."""
        return self.scope is Scope.QUERY or self.job_id is not None

    def _of_stream(self, task: TaskIdentity) -> str:
        """Bound to the query: a new checkpoint begins at batch 0, and is another job."""
        query = task.query if self.query is None else self.query
        if self.job_id is None and (query is None or self.scope is not Scope.QUERY):
            raise ConfigError(
                'delivery="exactly_once" and "atomic" need a job_id here, one for each place of the'
                " program that writes: Spark does not tell the name of the query, or it may write"
                " twice"
            )
        return ".".join(filter(None, (self.job_id, query)))

    def shard(self, task: TaskIdentity, layout: Layout | None) -> Shard:
        """The shard that ``task`` writes. Raises ConfigError."""
        name = self.job_name(task)
        if name.lasting and layout is None:
            raise ConfigError(UNPLACED)
        return Shard(
            prefix=self.prefix,
            job=name.job,
            number=task.partition,
            batch=name.batch,
            shards=layout.shards if name.lasting and layout is not None else None,
            topic=self.topic,
            run=task.run,
        )

    def shard_of_driver(self) -> Shard | None:
        """A shard of the batch as far as the driver knows it; None where only tasks do."""
        try:
            name = self.job_name(NO_TASK)
        except ConfigError:
            return None
        return Shard(
            prefix=self.prefix, job=name.job, number=0, batch=name.batch, shards=None,
            topic=self.topic,
        )  # fmt: skip


def terms_of(
    topic: str | None,
    *,
    prefix: Any = PREFIX,
    job_id: Any = None,
    marker_topic: Any = None,
    is_atomic: bool = False,
) -> Terms:
    """The terms that options describe. Raises ConfigError."""
    place = topic if marker_topic is None else marker_topic
    if place is None:
        raise ConfigError(
            'delivery="exactly_once" and "atomic" need a topic for their markers: give topic=, or'
            " marker_topic= where the topics are those of the rows"
        )
    for name, text in (("transaction_prefix", prefix), ("job_id", job_id)):
        if text is not None and not (isinstance(text, str) and 0 < len(text) <= LONGEST):
            raise ConfigError(f"{name}: expected a text of 1 to {LONGEST} characters; got {text!r}")
    return Terms(topic=check_topic(place), prefix=prefix, job_id=job_id, is_atomic=is_atomic)
