"""What one Spark task wrote."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field, replace
from typing import TYPE_CHECKING, Any

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
