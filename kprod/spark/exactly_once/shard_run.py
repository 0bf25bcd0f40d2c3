"""Runs the protocol of a shard with transactional producers."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from types import TracebackType
from typing import TYPE_CHECKING, Any, NamedTuple, Self

from kprod.errors import BrokerError, KprodError, ProducerFencedError
from kprod.spark.exactly_once import rules
from kprod.spark.exactly_once.marker import Marker, Ranges, read_marker
from kprod.spark.exactly_once.measuring import MeasuringProducer
from kprod.spark.exactly_once.protocol import deliver
from kprod.spark.exactly_once.shard import Shard
from kprod.spark.exactly_once.steps import (
    CommitMarker,
    CompareRows,
    Delivered,
    Fenced,
    Pause,
    Protocol,
    ReadMarker,
    Step,
    TakeOver,
    WriteRows,
    Written,
)
from kprod.spark.producer_cache import make_producer
from kprod.spark.row_policy import RowPolicy
from kprod.spark.task_producer import TaskProducer
from kprod.transactional.two_phase_commit import TwoPhaseCommit

if TYPE_CHECKING:
    from kprod.producer import KafkaProducer

CLOSING_SECONDS = 5.0
"""For aborting what an exception has left open; after that brokers do it, at its time-out."""

OVER = frozenset({47, 48, 90})
"""INVALID_PRODUCER_EPOCH, INVALID_TXN_STATE, PRODUCER_FENCED."""

log = logging.getLogger("kprod")

SendRows = Callable[[Any], None]
"""Sends the rows of the task by a ``TaskProducer``, or by what measures them."""


class _Position(NamedTuple):
    """An offset to commit, in the form that producers take."""

    offset: int
    metadata: str


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
        self._producers: dict[str, KafkaProducer] = {}
        self._taken_over: set[str] = set()
        self._open: str | None = None  # the id of the transaction that is
        self._began = 0.0

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        for producer in self._producers.values():
            producer.close(CLOSING_SECONDS)

    def deliver(self) -> Delivered:
        """Write the shard unless it is written. Raises ExactlyOnceError, and as ``send`` does."""
        limit = self._transaction_seconds(self._producer(self.shard.transactional_id))
        protocol = deliver(self.shard, limit * rules.SHARE_OF_TIME)
        try:
            return self._run(protocol)
        except Fenced as fenced:
            raise ProducerFencedError(str(fenced)) from fenced.__cause__

    def tick(self) -> None:
        """Raises TransactionTooSlow when half of the transaction's time is over."""
        if self._open is not None:
            limit = self._transaction_seconds(self._producers[self._open])
            rules.check_time(self.shard, self._began, self.now(), limit)

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
                if not self._gave_way(error):
                    raise
                fenced = Fenced(f"{self.shard}: {error}")
                fenced.__cause__ = error

    def _gave_way(self, error: KprodError) -> bool:
        """Abort what is open; whether another producer has taken over."""
        name, self._open = self._open, None
        if isinstance(error, ProducerFencedError) or name is None:
            return isinstance(error, ProducerFencedError)
        try:
            self._producers[name].abort_transaction()
        except ProducerFencedError:
            return True
        except KprodError as unconfirmed:
            error.add_note(f"its coordinator has not confirmed the abort: {unconfirmed}")
        return _was_aborted(error)

    def _take(self, step: Step) -> Any:
        match step:
            case TakeOver(name):
                self._take_over(name)
            case ReadMarker(group, wait):
                return self._read(group, wait=wait)
            case WriteRows(name):
                return self._write(name)
            case CommitMarker(name, group, marker):
                self._commit(name, group, marker)
            case CompareRows(marker):
                self._compare(marker)
            case Pause(seconds):
                self.sleep(seconds)
        return None

    def _producer(self, name: str) -> KafkaProducer:
        found = self._producers.get(name)
        if found is None:
            found = make_producer({**self.options, "transactional_id": name})
            self._producers[name] = found
        return found

    def _take_over(self, name: str) -> None:
        if name in self._taken_over:  # it was fenced, and comes back as another one
            self._producers.pop(name).close(0)
        self._producer(name).init_transactions()
        self._taken_over.add(name)

    def _read(self, group: str, *, wait: bool) -> Marker | None:
        place = self.shard.place
        asked = self._producer(self.shard.transactional_id)
        found = TwoPhaseCommit(asked).committed_offsets(group, [place], wait=wait)[place]
        return read_marker(found.offset, found.metadata, group)

    def _begin(self, name: str) -> KafkaProducer:
        producer = self._producers[name]
        if self._open != name:
            producer.begin_transaction()
            self._open, self._began = name, self.now()
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
            self._producers[name].partitions_for(self.shard.topic)  # that it exists, or is made
        producer = self._begin(name)
        position = _Position(marker.offset, marker.metadata)
        producer.send_offsets_to_transaction({self.shard.place: position}, group)
        self.tick()
        producer.commit_transaction()
        self._open = None

    def _compare(self, marker: Marker) -> None:
        if self.policy.on_row_error != "fail":
            return  # what becomes of a row may be the broker's choice
        measured = MeasuringProducer()
        self.send_rows(measured)
        rules.check_rows(marker, self.shard, measured.offered.rows, measured.offered.bytes)

    def _transaction_seconds(self, producer: KafkaProducer) -> float:
        return producer.config.transaction_timeout_ms / 1000


def _was_aborted(error: BaseException | None) -> bool:
    """Whether brokers say that the transaction is over, or its epoch old.

    Protocol 2 takes an abort of a producer while another one is being given its place: that one is
    not told yet that it was fenced. The time-out is no reason: ``tick`` comes before it.
    """
    while error is not None:
        if isinstance(error, BrokerError) and error.code in OVER:
            return True
        error = error.__cause__
    return False


def _ranges(task: TaskProducer) -> Ranges:
    ranges: dict[str, list[list[int]]] = {}
    for found in [*task.outcomes.ranges(), *task.dead_letters.ranges()]:
        place = [found.partition, found.first, found.last, found.records]
        ranges.setdefault(found.topic, []).append(place)
    return ranges
