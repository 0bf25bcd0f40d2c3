"""The result of a whole job."""

from __future__ import annotations

import html
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from kprod.quantities import counted

if TYPE_CHECKING:
    from kprod.exactly_once.steps import PreparedShard


ACKNOWLEDGED, COMMITTED, ALREADY_THERE = "acknowledged", "committed", "already_there"
PREPARED, EMPTY = "prepared", "empty"


@dataclass(frozen=True, slots=True, kw_only=True)
class OffsetRange:
    """The offsets of the records of one task in one topic partition.

    ``first`` and ``last`` are inclusive. Records of other tasks may be in between. Both are -1 if
    the broker returned no offsets (``acks=0``). ``records`` is the number of records of this task.
    """

    topic: str
    partition: int
    first: int
    last: int
    records: int


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionReport:
    """What one task attempt wrote, for one Spark partition.

    ``task`` is the number of the Spark partition. ``attempt`` counts its attempts from 0. Both are
    -1 outside a Spark task. ``host`` and ``pid`` identify the worker process.

    ``records`` is the number of acknowledged records. ``bytes`` is the size of their keys and
    values, before compression. ``retries`` counts records that were sent again. ``offsets`` has an
    ``OffsetRange`` for each topic partition, including those of the dead-letter topic.

    ``skipped`` and ``dead_letters`` count invalid rows, which are not included in ``records``.
    ``reasons`` says why: the first ones in full, further ones only by type.

    ``seconds`` is the time from the first row to the last acknowledgement. ``input_seconds`` is the
    part of it spent waiting for rows; ``flush_seconds``, the part spent waiting for
    acknowledgements at the end.

    ``delivered`` is "acknowledged" or, with ``delivery="exactly_once"``, "committed" (by this
    attempt), "already_there" (another attempt wrote the shard) or "empty" (there were no rows, and
    no transaction). With "already_there", ``records``, ``bytes`` and ``offsets`` are those of the
    other attempt. ``rewritten`` is True if the task had been started before, by Spark or by an
    earlier run. The earlier attempt may or may not have sent rows. ``transactional_id`` is the id
    of the shard. With ``delivery="atomic"``, ``delivered`` is "prepared" until the batch is
    committed, and ``prepared`` contains what is needed to commit it.
    """

    task: int
    attempt: int
    records: int = 0
    bytes: int = 0
    retries: int = 0
    seconds: float
    host: str
    pid: int
    offsets: list[OffsetRange] = field(default_factory=list)
    input_seconds: float = 0.0
    flush_seconds: float = 0.0
    skipped: int = 0
    dead_letters: int = 0
    reasons: list[str] = field(default_factory=list)
    delivered: str = ACKNOWLEDGED
    rewritten: bool = False
    transactional_id: str | None = None
    prepared: PreparedShard | None = field(default=None, repr=False)

    def as_dict(self) -> dict[str, Any]:
        """Plain values only: the shape of a row with the schema ``SCHEMA``."""
        values = asdict(replace(self, prepared=None))
        del values["prepared"]
        return values


_TEXT, _INT, _BIGINT = ("string", pa.string()), ("int", pa.int32()), ("bigint", pa.int64())
_DOUBLE, _BOOLEAN = ("double", pa.float64()), ("boolean", pa.bool_())
_OFFSETS = {
    "topic": _TEXT,
    "partition": _INT,
    "first": _BIGINT,
    "last": _BIGINT,
    "records": _BIGINT,
}
_COLUMNS = {
    "task": _INT,
    "attempt": _INT,
    "records": _BIGINT,
    "bytes": _BIGINT,
    "retries": _BIGINT,
    "seconds": _DOUBLE,
    "host": _TEXT,
    "pid": _INT,
    "offsets": (
        f"array<struct<{', '.join(f'{name}: {ddl}' for name, (ddl, _) in _OFFSETS.items())}>>",
        pa.list_(pa.struct([(name, kind) for name, (_, kind) in _OFFSETS.items()])),
    ),
    "input_seconds": _DOUBLE,
    "flush_seconds": _DOUBLE,
    "skipped": _BIGINT,
    "dead_letters": _BIGINT,
    "reasons": ("array<string>", pa.list_(pa.string())),
    "delivered": _TEXT,
    "rewritten": _BOOLEAN,
    "transactional_id": _TEXT,
}
"""The types of a report's columns, for Spark and for Arrow."""
SCHEMA = ", ".join(f"{name} {ddl}" for name, (ddl, _) in _COLUMNS.items())
"""``PartitionReport`` as Spark DDL, for ``mapInArrow``."""


def as_record_batch(report: PartitionReport) -> pa.RecordBatch:
    """The report as a record batch with one row and the columns of ``SCHEMA``."""
    schema = pa.schema([(name, kind) for name, (_, kind) in _COLUMNS.items()])
    return pa.RecordBatch.from_pylist([report.as_dict()], schema=schema)


@dataclass(frozen=True, slots=True, kw_only=True)
class WriteResult:
    """What a job wrote: totals, and in ``shards`` the report of each Spark partition. Immutable.

    ``records``, ``bytes`` (of keys and values, before compression), ``skipped`` and
    ``dead_letters`` are sums. ``seconds`` is the duration of the job on the driver. ``offsets`` has
    an ``OffsetRange`` by topic and partition. ``reasons`` says why rows were skipped or became dead
    letters, and in how many shards each reason occurred.

    If Spark ran a task more than once, only its successful attempt is included. The exception is
    ``attempts``, which also counts failed attempts. If Spark ran a stage again, the earlier
    attempts of the stage are not counted.

    With ``delivery="exactly_once"`` and "atomic", ``committed``, ``already_there`` and
    ``rewritten`` count shards that have rows. ``committed`` counts those that this job committed,
    and ``already_there`` those that were committed before. ``rewritten`` counts the committed
    shards that an earlier task attempt had started; the earlier attempt may have sent rows.
    ``transactional_ids`` are the transactional ids of the shards.
    """

    records: int
    bytes: int
    skipped: int
    dead_letters: int
    seconds: float
    attempts: int
    offsets: Mapping[str, Mapping[int, OffsetRange]]
    reasons: Mapping[str, int]
    shards: Sequence[PartitionReport]
    committed: int = 0
    already_there: int = 0
    rewritten: int = 0
    transactional_ids: Sequence[str] = ()

    def as_dict(self) -> dict[str, Any]:
        """Plain values only, for JSON."""
        offsets = {
            topic: {str(number): asdict(found) for number, found in partitions.items()}
            for topic, partitions in self.offsets.items()
        }
        shards = [shard.as_dict() for shard in self.shards]
        ids = list(self.transactional_ids)
        replaced = {"offsets": offsets, "shards": shards, "transactional_ids": ids}
        return asdict(replace(self, offsets={}, shards=())) | replaced

    def __str__(self) -> str:
        rate = self.records / self.seconds if self.seconds > 0 else 0.0
        lost = f", {self.skipped:,} skipped" if self.skipped else ""
        dead = f", {self.dead_letters:,} dead letters" if self.dead_letters else ""
        return (
            f"{counted(self.records, 'record')} ({self.bytes / 1e6:,.1f} MB){lost}{dead} in"
            f" {self.seconds:.1f} s, {rate:,.0f} records/s{self._shards()}"
        )

    def _shards(self) -> str:
        done = self.committed + self.already_there
        if done:
            again = f" ({self.rewritten:,} of them rewritten)" if self.rewritten else ""
            return (
                f"; of {counted(done, 'shard')} {self.committed:,} committed{again},"
                f" {self.already_there:,} already there"
            )
        tasks = len(self.shards)  # none in a summary
        again = f" in {counted(self.attempts, 'attempt')}" if self.attempts > tasks else ""
        return f", {counted(tasks, 'shard')}{again}" if tasks else ""

    def _repr_html_(self) -> str:
        """A table for notebooks: the totals, and a line for each topic partition."""
        rows = [
            f"<tr><td>{html.escape(topic)}</td><td>{number}</td><td>{found.first:,}</td>"
            f"<td>{found.last:,}</td><td>{found.records:,}</td></tr>"
            for topic, partitions in self.offsets.items()
            for number, found in partitions.items()
        ]
        names = ("topic", "partition", "first offset", "last offset", "records")
        head = "".join(f"<th>{name}</th>" for name in names)
        return (
            f"<p>{html.escape(str(self))}</p><table><thead><tr>{head}</tr></thead>"
            f"<tbody>{''.join(rows)}</tbody></table>"
        )


def write_result(reports: Sequence[PartitionReport], seconds: float) -> WriteResult:
    """The result of a job from the reports of all its shards."""
    return WriteResult(
        **_sums(reports, "records", "bytes", "skipped", "dead_letters", "rewritten"),
        seconds=seconds,
        attempts=sum(report.attempt + 1 for report in reports),
        offsets=_merged([found for report in reports for found in report.offsets]),
        reasons=dict(Counter(reason for report in reports for reason in report.reasons)),
        shards=tuple(sorted(reports, key=lambda report: report.task)),
        committed=sum(report.delivered == COMMITTED for report in reports),
        already_there=sum(report.delivered == ALREADY_THERE for report in reports),
        transactional_ids=tuple(
            report.transactional_id for report in reports if report.transactional_id is not None
        ),
    )


MOST_REASONS = 100


def add_results(results: Sequence[WriteResult]) -> WriteResult:
    """The total of several jobs that ran one after the other, without the reports of shards.

    It has only the most frequent reasons.
    """
    reasons: Counter[str] = sum((Counter(result.reasons) for result in results), Counter())
    rows = ("records", "bytes", "skipped", "dead_letters")
    return WriteResult(
        **_sums(results, *rows, "seconds", "attempts", "committed", "already_there", "rewritten"),
        offsets=_merged([o for r in results for p in r.offsets.values() for o in p.values()]),
        reasons=dict(reasons.most_common(MOST_REASONS)),
        shards=(),
    )


def _sums(parts: Sequence[Any], *names: str) -> dict[str, Any]:
    return {name: sum(getattr(part, name) for part in parts) for name in names}


def _merged(ranges: Sequence[OffsetRange]) -> dict[str, dict[int, OffsetRange]]:
    """Ranges of the same partition combined into one."""
    merged: dict[str, dict[int, OffsetRange]] = {}
    for found in ranges:
        partitions = merged.setdefault(found.topic, {})
        before = partitions.get(found.partition)
        partitions[found.partition] = found if before is None else _both(before, found)
    return {topic: dict(sorted(merged[topic].items())) for topic in sorted(merged)}


def _both(one: OffsetRange, other: OffsetRange) -> OffsetRange:
    known = [found for found in (one, other) if found.first >= 0]
    return OffsetRange(
        topic=one.topic,
        partition=one.partition,
        first=min((found.first for found in known), default=-1),
        last=max((found.last for found in known), default=-1),
        records=one.records + other.records,
    )
