"""A shard: the rows of one task, under a name that every attempt derives from job and batch.

Rows may carry the number of their shard, so that a task can prove that they are all its own.
"""

from __future__ import annotations

import enum
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, fields
from functools import partial
from itertools import chain
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from kprod.errors import ConfigError
from kprod.intake.arguments import check_topic
from kprod.spark.python_worker import NO_TASK, TaskIdentity
from kprod.types import TopicPartition

SHARD_COLUMN = "kprod_shard"
HASH_COLUMN = "kprod_shard_hash"
"""The hash that has put the row into its shard."""
COUNT_SHIFT = 32
NUMBER_MASK = (1 << COUNT_SHIFT) - 1
MOST_SHARDS = 10_000

MOVED = (
    "rows have been moved after sharded(), by a shuffle, repartition() or coalesce(). Call"
    " sharded() as the last step before writing"
)


class Layout(NamedTuple):
    """Shard ``number`` of ``shards``."""

    number: int
    shards: int

    @classmethod
    def of(cls, packed: int) -> Layout:
        """From what the column has."""
        return cls(packed & NUMBER_MASK, packed >> COUNT_SHIFT)

    @property
    def packed(self) -> int:
        return self.shards << COUNT_SHIFT | self.number


def check_count(shards: Any) -> int:
    """Raises ConfigError for a number of shards that cannot be."""
    if not isinstance(shards, int) or isinstance(shards, bool) or not 1 <= shards <= MOST_SHARDS:
        raise ConfigError(f"shards: expected a number from 1 to {MOST_SHARDS:,}; got {shards!r}")
    return shards


class PlacedRows(Iterator[Any]):
    """The items of a task, which are checked, without the columns that ``sharded`` has added.

    ``layout`` is what those columns say; None where there are none. Then nothing is counted. Else
    ``rows`` have passed, and ``digest`` is the sum of their hashes modulo 2**64, None without a
    column of hashes: equal for the same rows in any order. Iterating raises ConfigError for rows
    that do not belong to this task. Thread: one.
    """

    def __init__(
        self, items: Iterator[Any], layout: Layout | None, take: Callable[[Any, Layout], _Taken]
    ) -> None:
        self.layout = layout
        self.rows = 0
        self.digest: int | None = None
        self._items = items
        self._take = take

    def __next__(self) -> Any:
        item = next(self._items)
        if self.layout is None:
            return item
        taken = self._take(item, self.layout)
        self.rows += taken.rows
        if taken.hashes is not None:
            self.digest = ((self.digest or 0) + taken.hashes) % (1 << 64)
        return taken.item

    def drain(self) -> None:
        """Count what is left."""
        for _ in self:
            pass


class _Taken(NamedTuple):
    item: Any
    rows: int
    hashes: int | None


def placed_rows(items: Iterable[Any], partition: int) -> PlacedRows:
    """The items of a task: record batches, Rows or dicts; others have no such columns.

    There is one at least. Raises ConfigError for rows of another task.
    """
    remaining = iter(items)
    first = next(remaining)
    arrow = isinstance(first, pa.RecordBatch)
    take = _take_batch if arrow else _take_item
    if SHARD_COLUMN not in (first.schema.names if arrow else _names(first)):
        return PlacedRows(chain((first,), remaining), None, take)
    while arrow and not first.num_rows:
        try:
            first = next(remaining)
        except StopIteration:
            return PlacedRows(iter(()), None, take)
    number = first.column(SHARD_COLUMN)[0].as_py() if arrow else first[SHARD_COLUMN]
    layout = Layout.of(number or 0)
    if layout.number != partition or not 0 < layout.shards <= MOST_SHARDS:
        raise ConfigError(f"task {partition} has rows of shard {layout.number}: {MOVED}")
    return PlacedRows(chain((first,), remaining), layout, take)


def _take_batch(batch: Any, layout: Layout) -> _Taken:
    column = batch.column(SHARD_COLUMN)
    if column.null_count:
        raise ConfigError(f"{SHARD_COLUMN} is null: {MOVED}")
    span = pc.min_max(column).as_py()
    if batch.num_rows and not span["min"] == span["max"] == layout.packed:
        raise ConfigError(MOVED)
    if HASH_COLUMN not in batch.schema.names:
        return _Taken(batch.drop_columns([SHARD_COLUMN]), batch.num_rows, None)
    hashes = pc.sum(batch.column(HASH_COLUMN)).as_py() or 0  # wraps, as the digest does
    return _Taken(batch.drop_columns([SHARD_COLUMN, HASH_COLUMN]), batch.num_rows, hashes)


def _names(item: Any) -> Any:
    return item if isinstance(item, Mapping) else getattr(item, "__fields__", ())


def _take_item(item: Any, layout: Layout) -> _Taken:
    row = dict(item) if isinstance(item, Mapping) else item.asDict()
    if row.pop(SHARD_COLUMN, None) != layout.packed:
        raise ConfigError(MOVED)
    return _Taken(row, 1, row.pop(HASH_COLUMN, None))


MARKER_PARTITION = 0
"""Every topic has it, however many partitions are added: a marker must be found again."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Shard:
    """``number`` of the shards of ``batch`` of the job that is called ``job``. Immutable.

    ``shards`` is how many the batch has; None where one Spark job writes all of it, as the number
    of its tasks cannot change. ``topic`` is the one that markers are committed for, ``target`` the
    one that rows go to, "" where each row says which. ``run`` is the same for all attempts of one
    call, and for nothing else: not for another call under the same ``job_id``, nor for a restart.
    ``start`` is that of ``TaskIdentity``.
    """

    prefix: str
    job: str
    number: int
    batch: int
    shards: int | None
    topic: str
    run: str = ""
    start: str = ""
    target: str = ""
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
    'delivery="exactly_once" and "atomic" need a fixed number of shards for this job, because a'
    " later run may write a batch again with different tasks. With write and foreach_batch, set"
    ' shards=8. With format("kprod") and partition_writer, call kprod.spark.sharded(df, 8)'
)

NAMELESS = (
    'delivery="exactly_once" and "atomic" need a name for a micro-batch, because Spark may run it'
    " again after a restart. Use kprod.spark.foreach_batch, which knows the query, or set a job_id"
)


class Scope(enum.Enum):
    """The scope of a job name that kprod has made."""

    CALL = enum.auto()  # one call that runs one Spark job
    STAGE = enum.auto()  # a callable: each stage that runs it writes again
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

    ``topic`` is the one that markers are committed for, ``target`` as in ``Shard``. ``job_id`` is
    the user's. ``query`` and ``batch`` are a stream's, where the driver knows them; else a task
    asks Spark. ``fresh`` belongs to this call alone: it distinguishes its run from others, and is
    the name where none is given.
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
        """A callable gets another fresh name whenever the driver ships it.

        Stages are counted from 0 in each Spark context, and tasks of RDDs do not know which one
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
            raise ConfigError("Spark does not report which query and batch this task belongs to")
        return JobName(self._run(task), 0, lasting=False)

    def _run(self, task: TaskIdentity) -> str:
        """What the attempts of one call share. A callable may be run by several stages."""
        return f"{self.fresh}.{task.stage}" if self.scope is Scope.STAGE else self.fresh

    @property
    def is_lasting(self) -> bool:
        """As far as the driver knows: see ``JobName``."""
        return self.scope is Scope.QUERY or self.job_id is not None

    def _of_stream(self, task: TaskIdentity) -> str:
        """Bound to the query: a new checkpoint begins at batch 0, and is another job."""
        query = task.query if self.query is None else self.query
        if self.job_id is None and (query is None or self.scope is not Scope.QUERY):
            raise ConfigError(
                'delivery="exactly_once" and "atomic" need a job_id here, a different one for each'
                " write of the program: Spark does not report the id of the query, or the query may"
                " write more than once"
            )
        return ".".join(filter(None, (self.job_id, query)))

    def shard(self, task: TaskIdentity, layout: Layout | None) -> Shard:
        """The shard that ``task`` writes. Raises ConfigError."""
        name = self.job_name(task)
        if name.lasting and layout is None:
            raise ConfigError(UNPLACED)
        shards = layout.shards if name.lasting and layout is not None else None
        return self._named(name, task, task.partition, shards)

    def shard_of_driver(self) -> Shard | None:
        """A shard of the batch as far as the driver knows it; None where only tasks do."""
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


DELIVERIES = ("at_least_once", "exactly_once", "atomic")
AT_LEAST_ONCE, EXACTLY_ONCE, ATOMIC = DELIVERIES


def terms_of(topic: str | None, options: Mapping[str, Any]) -> Terms | None:
    """The terms that options of a writer describe; None: at least once. Raises ConfigError."""
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
