"""A model of brokers and tasks: a random number generator chooses every next step.

Brokers keep transactional ids, groups and one log. A commit is decided first; its markers are
written later, to groups and log separately, as in Kafka. Attempts may stop at any step, and resume.
"""

from __future__ import annotations

import random
import zlib
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cache
from typing import Any

from kprod.exactly_once.atomic import Ending
from kprod.exactly_once.errors import ExactlyOnceError, TransactionTooSlow
from kprod.exactly_once.marker import Marker, check_rows, read_marker
from kprod.exactly_once.shard import Shard, names_of_attempts
from kprod.exactly_once.steps import (
    CommitMarkers,
    CompareRows,
    EndAll,
    FenceAll,
    Fenced,
    ListOpen,
    Pause,
    Prepare,
    Protocol,
    ReadMarker,
    Step,
    TakeOver,
    WriteRows,
    Written,
)
from kprod.transactional.two_phase_commit import PreparedTransaction

Row = tuple[int, ...]
"""Batch and number; rows of several jobs have more fields."""
Offset = tuple[int, str, int]
"""With its metadata, and its number in the order of offsets."""

LAYOUT = "p.j.layout"
WAIT = object()
"""The answer of brokers that are not ready."""


@cache
def row_hash(row: Row) -> int:
    """The same in every process."""
    return zlib.crc32(repr(row).encode())


def digest(rows: list[Row]) -> int:
    """As in ``TaskRows``: without the topic, which is the fourth field."""
    return sum(row_hash(row[:3]) for row in rows)


@dataclass
class Transaction:
    rows: list[Row] = field(default_factory=list)
    offsets: dict[str, Offset] = field(default_factory=dict)
    decided: bool = False  # to commit; its markers are not all written

    @property
    def batches(self) -> set[int]:
        return {row[0] for row in self.rows}


class Brokers:
    def __init__(self, dice: random.Random) -> None:
        self.epochs: dict[str, int] = {}
        self.open: dict[str, Transaction] = {}
        self.groups: dict[str, Offset] = {}
        self.log: Counter[Row] = Counter()
        self.ended: dict[tuple[str, int], bool] = {}  # by name and epoch: whether committed
        self.undecided: list[str] = []  # rows that became visible without a decision on record
        self._late: dict[str, Offset] = {}  # offsets that groups do not have yet
        self._timed_out: set[tuple[str, int]] = set()
        self._dice = dice
        self._offsets = 0

    def take_over(self, name: str) -> Any:
        found = self.open.get(name)
        if found is not None and found.decided:
            return WAIT
        if self.open.pop(name, None) is not None:  # aborted
            self.ended[name, self.epochs[name]] = False
        self.epochs[name] = self.epochs.get(name, 0) + 1
        return self.epochs[name]

    def is_changing(self, group: str) -> bool:
        """Whether an unfinished transaction has an offset of the group."""
        return group in self._late or any(group in one.offsets for one in self.open.values())

    def read(self, group: str, wait: bool) -> Any:
        if self.is_changing(group):
            return WAIT if wait else None
        found = self.groups.get(group)
        return None if found is None else read_marker(found[0], found[1].encode(), group)

    def expire(self, offsets: int) -> None:
        oldest = sorted(self.groups, key=lambda group: self.groups[group][2])
        for group in oldest[:offsets]:
            del self.groups[group]

    def check(self, name: str, epoch: int) -> None:
        if self.epochs.get(name) != epoch:
            timed_out = (name, epoch) in self._timed_out
            raise Fenced(name, TransactionTooSlow(name) if timed_out else None)

    def write(self, name: str, epoch: int, rows: list[Row]) -> Any:
        self.check(name, epoch)
        found = self.open.get(name)
        if found is not None and found.decided:
            return WAIT
        self.open.setdefault(name, Transaction()).rows += rows
        return None

    def add_offset(self, name: str, epoch: int, group: str, marker: Marker) -> Any:
        self.check(name, epoch)
        found = self.open.get(name)
        if found is not None and found.decided:
            return WAIT
        offsets = self.open.setdefault(name, Transaction()).offsets
        self._offsets += 1
        offsets[group] = (marker.offset, marker.metadata, self._offsets)
        return None

    def commit(self, name: str, epoch: int) -> None:
        self.check(name, epoch)
        found = self.open.get(name)
        if found is not None:
            found.decided = True
            self._check_decided(name)
        elif not self.ended.get((name, epoch)):  # aborted under its own epoch
            raise Fenced(name)

    def end(self, name: str, epoch: int, committed: bool) -> Any:
        """EndTxn by its epoch: whether the transaction ended this way, now or before."""
        if self.epochs.get(name) != epoch:
            return False
        found = self.open.get(name)
        if found is None:
            return self.ended.get((name, epoch)) is committed
        if found.decided:
            return WAIT if committed else False
        if committed:
            found.decided = True
            self._check_decided(name)
        else:
            del self.open[name]
            self.ended[name, epoch] = False
        return True

    def opened(self, job_name: str, idle: bool) -> list[PreparedTransaction]:
        """The attempts that ListTransactions and DescribeTransactions return."""
        attempts = names_of_attempts(job_name, layout=idle)
        names = self.epochs if idle else self.open
        return [
            PreparedTransaction(name, 1, self.epochs[name])
            for name in sorted(names)
            if attempts.fullmatch(name) and not (name in self.open and self.open[name].decided)
        ]

    def is_open(self, name: str, epoch: int) -> bool:
        found = self.open.get(name)
        return found is not None and not found.decided and self.epochs[name] == epoch

    def time_out(self) -> None:
        """A coordinator aborts a transaction at its timeout, in a new epoch."""
        names = sorted(name for name, one in self.open.items() if not one.decided)
        if names:
            name = self._dice.choice(names)
            del self.open[name]
            self.ended[name, self.epochs[name]] = False
            self._timed_out.add((name, self.epochs[name]))
            self.epochs[name] += 1

    def _check_decided(self, name: str) -> None:
        """Record a violation if the layout of the batch is not committed yet."""
        recorded = [one.get(LAYOUT, (0, "", 0))[0] for one in (self.groups, self._late)]
        recorded += [
            one.offsets[LAYOUT][0]
            for other, one in self.open.items()
            if one.decided and other != name and LAYOUT in one.offsets
        ]
        for batch in self.open[name].batches:
            if batch + 1 > max(recorded):
                self.undecided.append(f"batch {batch} is visible in part, and not decided")

    def tick(self) -> None:
        """Write one of the pending markers."""
        if self._late and self._dice.random() < 0.5:
            group = min(self._late)
            self.groups[group] = self._late.pop(group)
            return
        decided = sorted(name for name, one in self.open.items() if one.decided)
        if not decided:
            return
        name = self._dice.choice(decided)
        one = self.open[name]
        if one.rows and (not one.offsets or self._dice.random() < 0.5):
            self.log.update(one.rows)
            one.rows = []
        elif one.offsets:
            group = min(one.offsets)
            self._late[group] = one.offsets.pop(group)
        if not one.rows and not one.offsets:
            del self.open[name]
            self.ended[name, self.epochs[name]] = True

    def settle(self) -> None:
        for name in [name for name, one in self.open.items() if not one.decided]:
            del self.open[name]
        while self.open or self._late:
            self.tick()


class Attempt:
    """A running attempt at a shard. It ends with ``result`` or ``error``."""

    def __init__(
        self, protocol: Protocol | Ending, shard: Shard, rows: list[Row], brokers: Brokers
    ) -> None:
        self.shard = shard
        self.result: Any = None
        self.error: Exception | None = None
        self.before_pause: Callable[[], None] = lambda: None
        self._rows = rows
        self._protocol = protocol
        self._brokers = brokers
        self.epochs: dict[str, int] = {}
        self._written: Step | None = None
        self._step: Any = None
        self._resume(lambda: next(protocol))

    @property
    def ended(self) -> bool:
        return self.result is not None or self.error is not None

    @property
    def pause(self) -> float | None:
        """The seconds of its current pause; None for other steps."""
        return self._step.seconds if isinstance(self._step, Pause) else None

    def move(self) -> None:
        """Execute the current step, or a part of it."""
        if isinstance(self._step, Pause):
            self.before_pause()
        try:
            answer = self._execute(self._step)
        except Fenced as fenced:
            raised = fenced
            self._resume(lambda: self._protocol.throw(raised))
            return
        except ExactlyOnceError as error:
            self.error = error
            return
        if answer is not WAIT:
            self._resume(lambda: self._protocol.send(answer))

    def _resume(self, resume: Callable[[], Step]) -> None:
        self._part = 0
        self._answers: list[bool] = []
        try:
            self._step = resume()
        except StopIteration as end:
            self.result = end.value
        except (Fenced, ExactlyOnceError) as error:
            self.error = error

    def _execute(self, step: Step) -> Any:
        brokers = self._brokers
        match step:
            case TakeOver(name):
                epoch = brokers.take_over(name)
                if epoch is not WAIT:
                    self.epochs[name] = epoch
                return epoch
            case ReadMarker(group, wait):
                return brokers.read(group, wait)
            case WriteRows(name):
                return self._write(name)
            case CommitMarkers(name, markers):
                return self._commit_markers(name, markers)
        return self._execute_atomic(step)

    def _execute_atomic(self, step: Step) -> Any:
        brokers = self._brokers
        match step:
            case Prepare(name, group, marker):
                epoch = self.epochs[name]
                added = brokers.add_offset(name, epoch, group, marker)
                return WAIT if added is WAIT else PreparedTransaction(name, 1, epoch)
            case EndAll(transactions, committed):
                return self._end_all(transactions, committed)
            case FenceAll(names):
                if self._part < len(names):
                    self._part += brokers.take_over(names[self._part]) is not WAIT
                    return WAIT
            case ListOpen(job_name, idle):
                return brokers.opened(job_name, idle)
            case CompareRows(marker):
                found = digest(self._rows)
                check_rows(marker, self.shard, rows=len(self._rows), nbytes=0, digest=found)
        return None

    def _write(self, name: str) -> Any:
        """Write one half of the rows, then the other. Spark's rows can be read once."""
        assert self._written in (None, self._step), "rows are read a second time"
        self._written = self._step
        half = len(self._rows) // 2
        parts = (self._rows[:half], self._rows[half:])
        if self._brokers.write(name, self.epochs[name], parts[self._part]) is WAIT:
            return WAIT
        self._part += 1
        if self._part < len(parts):
            return WAIT
        return Written(rows=len(self._rows), bytes=0, digest=digest(self._rows))

    def _end_all(self, transactions: tuple[PreparedTransaction, ...], committed: bool) -> Any:
        if self._part < len(transactions):
            one = transactions[self._part]
            answer = self._brokers.end(one.transactional_id, one.epoch, committed)
            if answer is not WAIT:
                self._answers.append(answer)
                self._part += 1
            return WAIT
        return tuple(self._answers)

    def _commit_markers(self, name: str, markers: tuple[tuple[str, Marker], ...]) -> Any:
        epoch = self.epochs[name]
        if self._part < len(markers):
            if self._brokers.add_offset(name, epoch, *markers[self._part]) is not WAIT:
                self._part += 1
            return WAIT
        self._brokers.commit(name, epoch)
        return None


def run_to_end(attempts: list[Attempt], brokers: Brokers, dice: random.Random) -> None:
    while any(not one.ended for one in attempts):
        brokers.tick()
        if dice.random() < 0.01:
            brokers.time_out()
        for one in attempts:
            if not one.ended and dice.random() < 0.5:  # in lockstep they might fence each other
                one.move()
