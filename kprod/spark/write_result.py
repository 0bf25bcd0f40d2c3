"""What a whole job wrote."""

from __future__ import annotations

import html
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from kprod.spark.partition_report import ALREADY_THERE, COMMITTED, OffsetRange, PartitionReport


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
            f"{self.records:,} records ({self.bytes / 1e6:,.1f} MB){lost}{dead} in"
            f" {self.seconds:.1f} s, {rate:,.0f} records/s, {len(self.shards)} shards"
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
