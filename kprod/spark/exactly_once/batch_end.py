"""Ends an atomic batch: what the driver does once all tasks have prepared, or have failed."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from kprod.errors import KprodError, ProducerFencedError
from kprod.spark.errors import ExactlyOnceError
from kprod.spark.exactly_once import atomic, rules
from kprod.spark.exactly_once.atomic import Ended, Ending
from kprod.spark.exactly_once.producer_steps import ProducerSteps, is_over
from kprod.spark.exactly_once.shard import Shard
from kprod.spark.exactly_once.steps import (
    CheckTime,
    CommitMarkers,
    EndAll,
    FenceAll,
    Fenced,
    ListOpen,
    Pause,
    PreparedShard,
    ReadMarker,
    Step,
    TakeOver,
)
from kprod.transactional.two_phase_commit import PreparedTransaction


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchEnd:
    """The end of the batch that ``of``, any of its shards, belongs to. Immutable; it pickles.

    It runs where brokers can be reached and secrets looked up: in a driver's Python worker, or in a
    task of its own. ``commit`` and ``abort`` may be called again, and by others at the same time.
    """

    of: Shard
    shards: int
    prepared: tuple[PreparedShard, ...]
    options: Mapping[str, Any] = field(repr=False)  # may hold passwords
    transaction_timeout: float  # seconds
    sleep: Callable[[float], None] = time.sleep

    def commit(self) -> Ended:
        """Decide that the batch counts, and commit it. Raises as ``atomic.commit``."""
        return self.follow(atomic.commit(self.of, self.shards, self.prepared, self.patience))

    def abort(self) -> Ended:
        """Give the batch up, unless it is decided: then it is committed. Raises as ``commit``."""
        return self.follow(atomic.abort(self.of, self.prepared))

    @property
    def patience(self) -> float:
        """How many seconds a driver that was fenced waits for the decision of the other one."""
        return self.transaction_timeout * rules.SHARE_OF_TIME

    def follow(self, ending: Ending) -> Ended:
        """Take the steps of ``ending``. Raises ExactlyOnceError, and what brokers refuse.

        Raises ProducerFencedError when another driver has taken over and does not decide.
        """
        answer: Any = None
        raised: Fenced | ExactlyOnceError | None = None
        with ProducerSteps(self.options, self.of.place) as steps:
            while True:
                try:
                    step = ending.send(answer) if raised is None else ending.throw(raised)
                except StopIteration as end:
                    ended: Ended = end.value
                    return ended
                except Fenced as lost:
                    raise ProducerFencedError(str(lost)) from lost.__cause__
                answer, raised = None, None
                try:
                    answer = self._take(step, steps)
                except ExactlyOnceError as error:
                    raised = error
                except KprodError as error:
                    if not (isinstance(error, ProducerFencedError) or is_over(error)):
                        raise
                    raised = Fenced(f"{self.of.layout_id}: {error}")
                    raised.__cause__ = error

    def _take(self, step: Step, steps: ProducerSteps) -> Any:
        match step:
            case TakeOver(name):
                steps.take_over(name)
            case ReadMarker(group, wait):
                return steps.read(group, asked=self.of.layout_id, wait=wait)
            case ListOpen(layout_id):
                return steps.opened(layout_id)
            case EndAll(transactions, committed):
                return steps.end_all(transactions, committed=committed)
            case _:
                self._take_other(step, steps)
        return None

    def _take_other(self, step: Step, steps: ProducerSteps) -> None:
        match step:
            case CommitMarkers(name, markers):
                producer = steps.producer(name)
                producer.partitions_for(self.of.topic)  # it exists, or is made
                producer.begin_transaction()
                for group, marker in markers:
                    steps.add_marker(name, group, marker)
                producer.commit_transaction()
            case FenceAll(names):
                steps.fence_all(names)
            case CheckTime(transactions):
                self._check_time(transactions)
            case Pause(seconds):
                self.sleep(seconds)

    def _check_time(self, transactions: tuple[PreparedTransaction, ...]) -> None:
        began = [one.began_ms for one in transactions if one.began_ms is not None]
        if began:
            now = time.time_ns() / 1e9
            rules.check_batch_time(self.of, min(began) / 1000, now, self.transaction_timeout)
