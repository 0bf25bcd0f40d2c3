"""The result of a whole job."""

from __future__ import annotations

import html
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import TYPE_CHECKING, Any

from kprod.quantities import counted

if TYPE_CHECKING:
    from kprod.spark.exactly_once.steps import PreparedShard


ACKNOWLEDGED, COMMITTED, ALREADY_THERE = "acknowledged", "committed", "already_there"
PREPARED = "prepared"


@dataclass(frozen=True, slots=True, kw_only=True)
class OffsetRange:
    """The offsets one task was given in one topic partition.

    ``first`` and ``last`` are inclusive; records of other writers may lie between them. Both are -1
    when the broker did not tell offsets (``acks=0``). ``records`` counts this task's own.
    """

    topic: str
    partition: int
    first: int
    last: int
    records: int


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionReport:
    """The acknowledged work of one attempt at one Spark partition.

    ``task`` is the number of the Spark partition, ``attempt`` counts its attempts from 0; both are
    -1 outside a Spark task. ``bytes`` are key and value bytes as they were sent, before
    compression. ``retries`` counts record retries of the worker's producer meanwhile. ``seconds``
    run from the first input record to the last acknowledgement; ``input_seconds`` of them the task
    waited for rows of Spark's, ``flush_seconds``, at the end, for acknowledgements.

    ``skipped`` and ``dead_letters`` count rows that are not among ``records``, and ``reasons`` says
    why, as far as there is room. ``offsets`` has the dead letters' topic, too.

    ``delivered`` is "acknowledged", or with ``delivery="exactly_once"`` "committed", by this
    attempt, or "already_there": another one had done it, and ``records``, ``bytes`` and, as far as
    they are known, ``offsets`` are what that one wrote. ``rewritten``: attempts before this one had
    begun. ``transactional_id`` is that of the shard. With ``delivery="atomic"`` it is "prepared"
    until the driver has committed the batch; ``prepared`` is what the driver needs for that.
    """

    task: int
    attempt: int
    records: int
    bytes: int
    retries: int
    seconds: float
    host: str
    pid: int
    offsets: list[OffsetRange]
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
        told = asdict(replace(self, prepared=None))
        del told["prepared"]
        return told


SCHEMA = (
    "task int, attempt int, records bigint, bytes bigint, retries bigint, seconds double, "
    "host string, pid int, offsets array<struct<topic: string, partition: int, "
    "first: bigint, last: bigint, records: bigint>>, input_seconds double, flush_seconds double, "
    "skipped bigint, dead_letters bigint, reasons array<string>, delivered string, "
    "rewritten boolean, transactional_id string"
)
"""``PartitionReport`` as Spark DDL, for ``mapInArrow``."""


def as_record_batch(report: PartitionReport) -> Any:
    """The report as a ``pyarrow.RecordBatch`` of one row, typed as ``SCHEMA`` says."""
    import pyarrow as pa

    offsets = pa.struct(
        [
            ("topic", pa.string()),
            ("partition", pa.int32()),
            ("first", pa.int64()),
            ("last", pa.int64()),
            ("records", pa.int64()),
        ]
    )
    schema = pa.schema(
        [
            ("task", pa.int32()),
            ("attempt", pa.int32()),
            ("records", pa.int64()),
            ("bytes", pa.int64()),
            ("retries", pa.int64()),
            ("seconds", pa.float64()),
            ("host", pa.string()),
            ("pid", pa.int32()),
            ("offsets", pa.list_(offsets)),
            ("input_seconds", pa.float64()),
            ("flush_seconds", pa.float64()),
            ("skipped", pa.int64()),
            ("dead_letters", pa.int64()),
            ("reasons", pa.list_(pa.string())),
            ("delivered", pa.string()),
            ("rewritten", pa.bool_()),
            ("transactional_id", pa.string()),
        ]
    )
    return pa.RecordBatch.from_pylist([report.as_dict()], schema=schema)


@dataclass(frozen=True, slots=True, kw_only=True)
class WriteResult:
    """The acknowledged work of one job: totals, and ``shards``, the report of each Spark partition.

    ``records``, ``bytes`` (of keys and values, before compression), ``skipped`` and
    ``dead_letters`` are sums; ``seconds`` is how long the job took on the driver. Of a task that
    Spark ran more than once only the attempt that counts is here; ``attempts`` counts those before
    it, too, within one run of its stage: tasks do not know that the stage has run before.
    ``offsets`` are where the records are, by topic and partition; ``reasons`` why rows were skipped
    or became dead letters, and in how many shards.

    With ``delivery="exactly_once"`` each shard was ``committed`` by this job, some of them
    ``rewritten`` after an attempt that had not come to its end, or is ``already_there``: those
    three count shards, and ``transactional_ids`` name them. Immutable.
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
        return {
            "records": self.records,
            "bytes": self.bytes,
            "skipped": self.skipped,
            "dead_letters": self.dead_letters,
            "seconds": self.seconds,
            "attempts": self.attempts,
            "offsets": {
                topic: {str(number): asdict(found) for number, found in partitions.items()}
                for topic, partitions in self.offsets.items()
            },
            "reasons": dict(self.reasons),
            "shards": [shard.as_dict() for shard in self.shards],
            "committed": self.committed,
            "already_there": self.already_there,
            "rewritten": self.rewritten,
            "transactional_ids": list(self.transactional_ids),
        }

    def __str__(self) -> str:
        rate = self.records / self.seconds if self.seconds > 0 else 0.0
        lost = f", {self.skipped:,} skipped" if self.skipped else ""
        dead = f", {self.dead_letters:,} dead letters" if self.dead_letters else ""
        return (
            f"{counted(self.records, 'record')} ({self.bytes / 1e6:,.1f} MB){lost}{dead} in"
            f" {self.seconds:.1f} s, {rate:,.0f} records/s, {counted(len(self.shards), 'shard')}"
            f"{self._transactions()}"
        )

    def _transactions(self) -> str:
        if not self.committed and not self.already_there:
            return ""
        again = f" ({self.rewritten:,} of them rewritten)" if self.rewritten else ""
        return f": {self.committed:,} committed{again}, {self.already_there:,} already there"

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
    """The reports of all shards, taken together."""
    return WriteResult(
        records=sum(report.records for report in reports),
        bytes=sum(report.bytes for report in reports),
        skipped=sum(report.skipped for report in reports),
        dead_letters=sum(report.dead_letters for report in reports),
        seconds=seconds,
        attempts=sum(report.attempt + 1 for report in reports),
        offsets=_merged([found for report in reports for found in report.offsets]),
        reasons=dict(Counter(reason for report in reports for reason in report.reasons)),
        shards=tuple(sorted(reports, key=lambda report: report.task)),
        committed=sum(report.delivered == COMMITTED for report in reports),
        already_there=sum(report.delivered == ALREADY_THERE for report in reports),
        rewritten=sum(report.rewritten for report in reports),
        transactional_ids=tuple(
            report.transactional_id for report in reports if report.transactional_id is not None
        ),
    )


def add_results(results: Sequence[WriteResult]) -> WriteResult:
    """Several jobs taken together, one after the other: without their single shards."""
    merged = _merged([found for r in results for p in r.offsets.values() for found in p.values()])
    return WriteResult(
        records=sum(result.records for result in results),
        bytes=sum(result.bytes for result in results),
        skipped=sum(result.skipped for result in results),
        dead_letters=sum(result.dead_letters for result in results),
        seconds=sum(result.seconds for result in results),
        attempts=sum(result.attempts for result in results),
        offsets=merged,
        reasons=dict(sum((Counter(result.reasons) for result in results), Counter())),
        shards=(),
        committed=sum(result.committed for result in results),
        already_there=sum(result.already_there for result in results),
        rewritten=sum(result.rewritten for result in results),
    )


def _merged(ranges: Sequence[OffsetRange]) -> dict[str, dict[int, OffsetRange]]:
    """Ranges of the same partition taken together."""
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
