"""A Spark partition as a shard: a task writes it by the protocol, with transactional producers."""

from __future__ import annotations

import logging
import os
import socket
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from kprod.errors import KprodError, ProducerFencedError
from kprod.spark.errors import TransactionTooSlow
from kprod.spark.exactly_once.atomic import prepare
from kprod.spark.exactly_once.marker import (
    SHARE_OF_TIME,
    Marker,
    Ranges,
    check_rows,
    check_time,
    too_slow,
)
from kprod.spark.exactly_once.placement import Layout
from kprod.spark.exactly_once.producer_steps import ProducerSteps, is_over
from kprod.spark.exactly_once.protocol import deliver
from kprod.spark.exactly_once.shard import Shard, Terms
from kprod.spark.exactly_once.steps import (
    CommitMarker,
    CompareRows,
    Delivered,
    EndAll,
    Fenced,
    Pause,
    Prepare,
    Protocol,
    ReadMarker,
    Step,
    TakeOver,
    WriteRows,
    Written,
)
from kprod.spark.rejected_rows import RowPolicy
from kprod.spark.task_identity import TaskIdentity
from kprod.spark.task_producer import MeasuringProducer, TaskProducer
from kprod.spark.write_result import (
    ALREADY_THERE,
    COMMITTED,
    PREPARED,
    OffsetRange,
    PartitionReport,
)
from kprod.transactional.two_phase_commit import PreparedTransaction, TwoPhaseCommit

if TYPE_CHECKING:
    from kprod.producer import KafkaProducer

log = logging.getLogger("kprod")

SendRows = Callable[[Any], None]
"""Sends the rows of the task by a ``TaskProducer``, or by what measures them."""


@dataclass(kw_only=True)
class ShardRun:
    """One attempt at ``shard``. Thread: one (the task's); one use, as a context manager.

    ``tick`` is to be called while rows are sent; it raises TransactionTooSlow. ``producer`` is what
    has sent them, once they are.
    """

    shard: Shard
    options: Mapping[str, Any] = field(repr=False)  # may hold passwords
    timeout: float | None
    policy: RowPolicy
    send_rows: SendRows
    now: Callable[[], float] = time.monotonic
    sleep: Callable[[float], None] = time.sleep
    producer: TaskProducer | None = None

    def __post_init__(self) -> None:
        self._steps = ProducerSteps(self.options, self.shard.place)
        self._open: str | None = None  # the id of the transaction that is
        self._began = 0.0
        self._began_ms = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._steps.__exit__()

    def deliver(self) -> Delivered:
        """Write the shard unless it is written. Raises as ``follow``."""
        return self.follow(deliver(self.shard, self.patience))

    def prepare(self, attempt: int) -> Delivered:
        """Write the shard, and leave it prepared for the driver. Raises as ``follow``."""
        return self.follow(prepare(self.shard, attempt, self.patience))

    @property
    def patience(self) -> float:
        """How many seconds an attempt that was fenced waits for the one that has fenced it."""
        producer = self._steps.producer(self.shard.transactional_id)
        return self._transaction_seconds(producer) * SHARE_OF_TIME

    def follow(self, protocol: Protocol) -> Delivered:
        """Take the steps of ``protocol``. Raises ExactlyOnceError, and as ``send`` does.

        Raises ProducerFencedError when another attempt has taken over and does not end the shard,
        TransactionTooSlow at once when the transaction was open for longer than its time-out.
        """
        try:
            return self._run(protocol)
        except Fenced as fenced:
            if fenced.too_slow is not None:
                raise fenced.too_slow from fenced.__cause__
            raise ProducerFencedError(str(fenced)) from fenced.__cause__

    def tick(self) -> None:
        """Raises TransactionTooSlow when half of the transaction's time is over."""
        if self._open is not None:
            limit = self._transaction_seconds(self._steps.producer(self._open))
            check_time(self.shard, self._began, self.now(), limit)

    def _run(self, protocol: Protocol) -> Delivered:
        answer: Any = None
        fenced: Fenced | None = None
        while True:
            try:
                step = protocol.send(answer) if fenced is None else protocol.throw(fenced)
            except StopIteration as end:
                delivered: Delivered = end.value
                return delivered
            answer, fenced = None, None
            try:
                answer = self._take(step)
            except KprodError as error:
                late = self._timed_out()
                if not self._gave_way(error):
                    raise
                fenced = Fenced(f"{self.shard}: {error}", late)
                fenced.__cause__ = error

    def _timed_out(self) -> TransactionTooSlow | None:
        """The error of the open transaction, if the coordinator has aborted it by now."""
        if self._open is None:
            return None
        limit = self._transaction_seconds(self._steps.producer(self._open))
        seconds = self.now() - self._began
        return too_slow(self.shard, seconds, limit) if seconds > limit else None

    def _gave_way(self, error: KprodError) -> bool:
        """Abort what is open; whether another producer has taken over."""
        name, self._open = self._open, None
        if isinstance(error, ProducerFencedError) or name is None:
            return isinstance(error, ProducerFencedError)
        try:
            self._steps.producer(name).abort_transaction()
        except ProducerFencedError:
            return True
        except KprodError as unconfirmed:
            error.add_note(f"its coordinator has not confirmed the abort: {unconfirmed}")
        return is_over(error)

    def _take(self, step: Step) -> Any:
        match step:
            case TakeOver(name):
                self._steps.take_over(name)
            case ReadMarker(group, wait):
                asked = self.shard.transactional_id
                return self._steps.read(group, asked=asked, wait=wait)
            case WriteRows(name):
                return self._write(name)
            case CommitMarker(name, group, marker):
                self._commit(name, group, marker)
            case _:
                return self._take_other(step)
        return None

    def _take_other(self, step: Step) -> Any:
        match step:
            case Prepare(name, group, marker):
                return self._prepare(name, group, marker)
            case EndAll(transactions, committed):
                return self._steps.end_all(transactions, committed=committed)
            case CompareRows(marker):
                self._compare(marker)
            case Pause(seconds):
                self.sleep(seconds)
        return None

    def _begin(self, name: str) -> KafkaProducer:
        producer = self._steps.producer(name)
        if self._open != name:
            producer.begin_transaction()
            self._open, self._began = name, self.now()
            self._began_ms = time.time_ns() // 1_000_000
        return producer

    def _write(self, name: str) -> Written:
        task = self.producer = TaskProducer(
            self._begin(name), self.timeout, self.policy, in_transaction=True
        )
        self.send_rows(task)
        task.finish()
        self.tick()
        return Written(rows=task.offered.rows, bytes=task.offered.bytes, ranges=_ranges(task))

    def _commit(self, name: str, group: str, marker: Marker) -> None:
        if self._open != name:
            topic = self.shard.topic  # it exists, or is made
            self._steps.producer(name).partitions_for(topic)
        producer = self._begin(name)
        self._steps.add_marker(name, group, marker)
        self.tick()
        producer.commit_transaction()
        self._open = None

    def _prepare(self, name: str, group: str, marker: Marker) -> PreparedTransaction:
        self._steps.add_marker(name, group, marker)
        self.tick()
        phases = TwoPhaseCommit(self._steps.producer(name))
        prepared = phases.prepare(began_ms=self._began_ms)
        self._open = None
        return prepared

    def _compare(self, marker: Marker) -> None:
        if self.policy.on_row_error != "fail":
            return  # what becomes of a row may be the broker's choice
        measured = MeasuringProducer()
        self.send_rows(measured)
        check_rows(marker, self.shard, measured.offered.rows, measured.offered.bytes)

    def _transaction_seconds(self, producer: KafkaProducer) -> float:
        return producer.config.transaction_timeout_ms / 1000


def _ranges(task: TaskProducer) -> Ranges:
    ranges: dict[str, list[list[int]]] = {}
    for found in [*task.outcomes.ranges(), *task.dead_letters.ranges()]:
        place = [found.partition, found.first, found.last, found.records]
        ranges.setdefault(found.topic, []).append(place)
    return ranges


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
