"""A Spark partition as a shard: where its rows belong, and what is told of its end."""

from __future__ import annotations

import logging
import os
import socket
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from kprod.spark.exactly_once.placement import Layout
from kprod.spark.exactly_once.shard import Shard
from kprod.spark.exactly_once.shard_run import ShardRun
from kprod.spark.exactly_once.steps import Delivered
from kprod.spark.exactly_once.terms import Terms
from kprod.spark.rejected_rows import RowPolicy
from kprod.spark.task_identity import TaskIdentity
from kprod.spark.task_producer import TaskProducer
from kprod.spark.write_result import (
    ALREADY_THERE,
    COMMITTED,
    PREPARED,
    OffsetRange,
    PartitionReport,
)

log = logging.getLogger("kprod")

SendTo = Callable[[Any, Iterable[Any]], None]
"""Sends items by a ``TaskProducer``, or by what measures them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ShardTask:
    """Writes the rows of one task exactly once, or prepares them. Immutable; thread: one."""

    terms: Terms
    task: TaskIdentity
    options: Mapping[str, Any] = field(repr=False)  # may hold passwords
    timeout: float | None
    policy: RowPolicy

    def write(self, layout: Layout | None, items: Iterable[Any], send: SendTo) -> PartitionReport:
        """Write ``items`` unless another attempt has. Raises as ``PartitionWriter`` does.

        Raises ExactlyOnceError besides, and ConfigError for rows that belong to no known shard.
        """
        shard = self.terms.shard(self.task, layout)
        started = time.monotonic()
        with ShardRun(
            shard=shard,
            options=self.options,
            timeout=self.timeout,
            policy=self.policy,
            send_rows=lambda producer: send(producer, _ticking(items, run)),
        ) as run:
            if self.terms.is_atomic:
                delivered = run.prepare(max(self.task.attempt, 0))
            else:
                delivered = run.deliver()
        seconds = time.monotonic() - started
        report = self._report(delivered, run.producer, seconds, shard)
        log.info("%s: %s, %d records", shard, report.delivered.replace("_", " "), report.records)
        return report

    def _report(
        self, delivered: Delivered, producer: TaskProducer | None, seconds: float, shard: Shard
    ) -> PartitionReport:
        ours = producer if delivered.by_us else None
        written = shard if delivered.prepared is None else delivered.prepared.shard
        rejected = None if ours is None else ours.rejected
        marker = delivered.marker
        return PartitionReport(
            task=self.task.partition,
            attempt=self.task.attempt,
            records=marker.rows if ours is None else ours.outcomes.records,
            bytes=marker.bytes if ours is None else ours.outcomes.bytes,
            retries=0 if ours is None else ours.retries,
            seconds=seconds,
            host=socket.gethostname(),
            pid=os.getpid(),
            offsets=[
                OffsetRange(topic=topic, partition=number, first=first, last=last, records=records)
                for topic, found in marker.ranges.items()
                for number, first, last, records in found
            ],
            flush_seconds=0.0 if ours is None else ours.flush_seconds,
            skipped=0 if rejected is None else rejected.skipped,
            dead_letters=0 if rejected is None else rejected.dead_letters,
            reasons=[] if rejected is None else rejected.reasons(),
            delivered=_how(delivered),
            rewritten=delivered.by_us and (delivered.rewritten or self.task.attempt > 0),
            transactional_id=written.transactional_id,
            prepared=delivered.prepared,
        )


def _how(delivered: Delivered) -> str:
    if delivered.prepared is not None:
        return PREPARED
    return COMMITTED if delivered.by_us else ALREADY_THERE


def _ticking(items: Iterable[Any], run: ShardRun) -> Iterator[Any]:
    for item in items:
        run.tick()
        yield item
