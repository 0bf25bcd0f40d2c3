"""The terms of an exactly-once delivery, such as the name under which a job writes its shards."""

from __future__ import annotations

import enum
import uuid
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from functools import partial
from typing import Any, NamedTuple, get_args

from kprod.errors import ConfigError
from kprod.exactly_once.shard import PREFIX, Shard
from kprod.intake.arguments import check_topic
from kprod.spark.options import Delivery
from kprod.spark.python_worker import NO_TASK, TaskIdentity
from kprod.spark.shard_rows import Layout

LONGEST = 200
UNPLACED = (
    'delivery="exactly_once" and "atomic" need a fixed number of shards for this job, because a'
    " later run may write a batch again with different tasks. With write and foreach_batch, set"
    ' shards=8. With format("kprod") and partition_writer, call kprod.spark.sharded(df, 8)'
)

FOLDED = (
    'partition_writer with delivery="exactly_once" needs a fixed number of shards, because one task'
    " may call it for several partitions, as after coalesce(). Call kprod.spark.sharded(df, 8) as"
    " the last step before writing"
)

NAMELESS = (
    'delivery="exactly_once" and "atomic" need a name for a micro-batch, because Spark may run it'
    " again after a restart. Use kprod.spark.foreach_batch, which knows the query, or set a job_id"
)


class Scope(enum.Enum):
    """What a generated job name stands for."""

    CALL = enum.auto()  # one call that runs one Spark job
    STAGE = enum.auto()  # a callable: each stage that runs it writes again
    QUERY = enum.auto()  # a streaming query: each batch comes once


class JobName(NamedTuple):
    """``lasting``: another Spark job with this name and batch may be a replay of this job."""

    job: str
    batch: int
    lasting: bool


def _fresh() -> str:
    return uuid.uuid4().hex


@dataclass(frozen=True, slots=True, kw_only=True)
class Terms:
    """The terms of ``delivery="exactly_once"`` or ``"atomic"`` (``is_atomic``). Immutable.

    ``topic`` is the topic that markers are committed for. ``target`` is as in ``Shard``. ``job_id``
    is the name that the user has given. ``query`` and ``batch`` are those of a stream, or None if
    the driver does not know them; each task then asks Spark. The ``query`` is "" if no task knows
    it either. ``fresh`` is unique to one call of kprod. It is the name of the job if there is no
    other.
    """

    topic: str
    target: str = ""
    prefix: str = PREFIX
    job_id: str | None = None
    scope: Scope = Scope.STAGE
    query: str | None = None
    batch: int | None = None
    is_atomic: bool = False
    fresh: str = field(default_factory=_fresh)

    def __reduce__(self) -> tuple[Any, ...]:
        """With ``Scope.STAGE``, make a new ``fresh`` name whenever the driver sends a callable out.

        The name of such a job consists of ``fresh`` and the number of the stage. Each Spark context
        counts its stages from 0. With the same ``fresh`` name, a second context would therefore
        find that everything is already written.
        """
        values = {one.name: getattr(self, one.name) for one in fields(self)}
        if self.scope is Scope.STAGE:
            values["fresh"] = _fresh()
        return partial(Terms, **values), ()

    def job_name(self, task: TaskIdentity) -> JobName:
        """The name of the job that ``task`` belongs to. Raises ConfigError if it has none."""
        batch = task.batch if self.batch is None else self.batch
        if batch is not None and self.scope is Scope.CALL and self.job_id is None:
            raise ConfigError(NAMELESS)
        if batch is not None:
            return JobName(self._of_stream(task), batch, lasting=True)
        if self.job_id is not None:
            return JobName(self.job_id, 0, lasting=True)
        if self.scope is Scope.QUERY:
            raise ConfigError("Spark does not report which query and batch this task belongs to")
        return JobName(self._run(task), 0, lasting=False)

    def _run(self, task: TaskIdentity) -> str:
        """A name for all attempts of one call of kprod, or of one stage that runs a callable."""
        return f"{self.fresh}.{task.stage}" if self.scope is Scope.STAGE else self.fresh

    @property
    def is_lasting(self) -> bool:
        """``JobName.lasting`` as far as the driver knows it."""
        return self.scope is Scope.QUERY or self.job_id is not None

    def _of_stream(self, task: TaskIdentity) -> str:
        """The job's name and the query's id. A new checkpoint counts from 0, so it is a new job."""
        query = task.query if self.query is None else self.query
        if self.job_id is None and (not query or self.scope is not Scope.QUERY):
            raise ConfigError(
                'delivery="exactly_once" and "atomic" need a job_id here, a different one for each'
                " write of the program: Spark does not report the id of the query, or the query may"
                " write more than once"
            )
        return ".".join(filter(None, (self.job_id, query)))

    def shard(self, task: TaskIdentity, layout: Layout | None) -> Shard:
        """The shard that ``task`` writes. Raises ConfigError."""
        name = self.job_name(task)
        if layout is None and (name.lasting or self.scope is Scope.STAGE):
            raise ConfigError(UNPLACED if name.lasting else FOLDED)
        shards = layout.shards if name.lasting and layout is not None else None
        return self._named(name, task, task.partition, shards)

    def shard_of_driver(self) -> Shard | None:
        """A shard of the batch as far as the driver knows it; None if only tasks know its name."""
        if self.scope is Scope.QUERY and self.query is None:
            return None
        try:
            name = self.job_name(NO_TASK)
        except ConfigError:
            return None
        return self._named(name, NO_TASK, 0, None)

    def _named(self, name: JobName, task: TaskIdentity, number: int, shards: int | None) -> Shard:
        return Shard(
            prefix=self.prefix, job=name.job, number=number, batch=name.batch, shards=shards,
            topic=self.topic, run=self._run(task), start=task.start, target=self.target,
        )  # fmt: skip


AT_LEAST_ONCE, _, ATOMIC = DELIVERIES = get_args(Delivery)


def terms_of(topic: str | None, options: Mapping[str, Any]) -> Terms | None:
    """The terms that a writer's options describe; None for at-least-once. Raises ConfigError."""
    delivery = options.get("delivery", AT_LEAST_ONCE)
    job_id, marker_topic = options.get("job_id"), options.get("marker_topic")
    prefix = options.get("transaction_prefix", PREFIX)
    if delivery not in DELIVERIES:
        known = ", ".join(f'"{one}"' for one in DELIVERIES)
        raise ConfigError(f"delivery: expected one of {known}; got {delivery!r}")
    if delivery == AT_LEAST_ONCE:
        if (job_id, marker_topic, prefix) != (None, None, PREFIX):
            raise ConfigError(
                "job_id, marker_topic and transaction_prefix are for"
                ' delivery="exactly_once" and "atomic"'
            )
        return None
    place = topic if marker_topic is None else marker_topic
    if place is None:
        raise ConfigError(
            'delivery="exactly_once" and "atomic" need a topic for their progress markers: set'
            " topic, or marker_topic if the rows have a topic column"
        )
    for name, text in (("transaction_prefix", prefix), ("job_id", job_id)):
        if text is not None and not (isinstance(text, str) and 0 < len(text) <= LONGEST):
            raise ConfigError(
                f"{name}: expected a string of 1 to {LONGEST} characters; got {text!r}"
            )
    return Terms(
        topic=check_topic(place),
        target=topic or "",
        prefix=prefix,
        job_id=job_id,
        is_atomic=delivery == ATOMIC,
    )
