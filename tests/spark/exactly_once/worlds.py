"""Jobs and calls on the model of brokers: each row must be stored once.

A ``Batch`` is one run of a driver: it schedules tasks, as Spark does, and ends the batch. Spark
accepts any one result of each task. A ``Job`` has several batches, and is restarted until all are
done. ``Calls`` are jobs of one batch with the same name.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any

from kprod.admin import GroupOffset, OpenTransaction
from kprod.cli import spark_batches
from kprod.exactly_once import atomic, protocol
from kprod.exactly_once.atomic import Ended, Ending
from kprod.exactly_once.errors import ExactlyOnceError, ShardCountChanged, TransactionTooSlow
from kprod.exactly_once.marker import Marker
from kprod.exactly_once.shard import Shard
from kprod.exactly_once.steps import EndAll, FenceAll, ListOpen, PreparedShard, ReadMarker
from kprod.transactional.two_phase_commit import PreparedTransaction
from kprod.types import TopicPartition
from tests.spark.exactly_once.model import LAYOUT, Attempt, Brokers, Row, row_hash, run_to_end

ROWS = 12
BATCHES = 3
SHARDS = (2, 3, 4)
PATIENCE = 3.0
MOST_MOVES = 20_000
MOST_FAILURES = 4
"""Failures of one task before its job fails."""
MOST_CALLS = 5


@dataclass(frozen=True)
class Rows:
    """The rows of a batch: ``ids`` are checked at the end, ``content`` selects the shard."""

    ids: tuple[int, ...]
    content: tuple[int, ...]
    batch: int = 0
    topic: int = 0

    def of_shard(self, number: int, shards: int) -> list[Row]:
        found = zip(self.ids, self.content, strict=True)
        return [
            (self.batch, one, content, self.topic)
            for one, content in found
            if row_hash((content,)) % shards == number
        ]

    def otherwise(self, dice: random.Random) -> Rows:
        """Other content in some rows; every shard keeps an unchanged row."""
        kept = {
            min(i for i in range(ROWS) if row_hash((self.content[i],)) % shards == number)
            for shards in SHARDS
            for number in range(shards)
        }
        content = [
            one if i in kept or dice.random() < 0.5 else one + 1_000
            for i, one in enumerate(self.content)
        ]
        return replace(self, content=tuple(content))


def rows(first: int = 0, batch: int = 0) -> Rows:
    ids = tuple(range(first, first + ROWS))
    return Rows(ids, ids, batch)


class Batch:
    """``reported``: it has reported that all rows are stored. ``error``: why it failed."""

    def __init__(self, world: World, rows: Rows, of: Shard, *, is_atomic: bool) -> None:
        self.rows = rows
        self.is_atomic = is_atomic
        self.reported = False
        self.error: BaseException | None = None
        self.gone = False  # its driver is dead
        self.is_cancelled = False
        self._world = world
        self._of = of
        self._shards = of.shards or 0
        self._ending: Attempt | None = None
        self._aborting = False
        self._failures: Counter[int] = Counter()
        self._tries: Counter[int] = Counter()
        self._prepared: list[PreparedShard] = []
        self._tasks: dict[int, list[Attempt]] = {number: [] for number in range(self._shards)}

    @property
    def ended(self) -> bool:
        return self.reported or self.gone or self.error is not None

    @property
    def attempts(self) -> list[Attempt]:
        return [one for tries in self._tasks.values() for one in tries]

    def _start(self, number: int) -> None:
        world, shard = self._world, replace(self._of, number=number)
        again = self._tries[number] > 0 and world.dice.random() < world.repeated
        self._tries[number] += 0 if again else 1  # a stage that runs again counts anew
        steps = (
            atomic.prepare(shard, self._tries[number] - 1, PATIENCE)
            if self.is_atomic
            else protocol.deliver(shard, PATIENCE)
        )
        attempt = Attempt(steps, shard, self.rows.of_shard(number, self._shards), world.brokers)
        self._tasks[number].append(attempt)
        world.attempts.append(attempt)

    def move(self) -> None:
        """Schedule the tasks; end the batch when they are done."""
        if self._ending is not None:
            self._check_end(self._ending)
        elif self._schedule():
            dice, found = self._world.dice, self._tasks.values()
            results = [[one.result for one in tries if one.result is not None] for tries in found]
            if not all(results):
                return
            counted = [dice.choice(one).prepared for one in results]
            self._prepared = [one for one in counted if one is not None]
            if not self.is_atomic:
                self.reported = True
                return
            if dice.random() < 0.5:  # a speculative copy that was just started
                self._start(dice.randrange(self._shards))
            fails = dice.random() < 0.05  # a task without a result: the job has failed
            self.end(RuntimeError("a task has no result") if fails else None)

    def _schedule(self) -> bool:
        """Retry failed tasks, copy slow ones; False when the batch has failed."""
        world = self._world
        for number, attempts in self._tasks.items():
            errors = [one.error for one in attempts if one.error is not None]
            done = any(one.result is not None for one in attempts)
            for error in errors if not done else ():
                slow = isinstance(error, TransactionTooSlow)
                if len(errors) >= MOST_FAILURES or (
                    isinstance(error, ExactlyOnceError) and not slow
                ):
                    self._fail(error)
                    return False
            running = [one for one in attempts if not one.ended and one in world.attempts]
            copies = (not done or self.is_atomic) and world.dice.random() < 0.007
            copies = copies and len(running) < 2
            if (not done and not running) or copies:
                self._start(number)
        return True

    def _fail(self, error: BaseException) -> None:
        if self.is_atomic:
            self.end(error)
        else:
            self.error = error

    def end(self, failure: BaseException | None = None) -> None:
        self._aborting, self._failure = failure is not None, failure
        steps = (
            atomic.commit(self._of, self._shards, self._prepared, PATIENCE)
            if failure is None
            else atomic.abort(self._of, self._prepared)
        )
        self._ending = Attempt(steps, self._of, [], self._world.brokers)
        self._world.attempts.append(self._ending)

    def _check_end(self, ending: Attempt) -> None:
        world = self._world
        if ending.error is not None or (ending.result is None and ending not in world.attempts):
            error = ending.error or RuntimeError("the end was killed")
            if self._aborting:
                self.error = error
            else:
                self._fail(error)
        elif ending.result is not None and self._aborting:
            self.error = self._failure
            if self.is_cancelled and not ending.result.committed:
                for one in self.attempts:
                    world.check_closed(one, "after the driver was cancelled")
        elif ending.result is not None and world.dice.random() < 0.1:
            self.end()  # once more, with the same messages
        elif ending.result is not None:
            self.reported = True
            if ending.result.by_us:
                world.is_committed(self.attempts)

    def cancel(self) -> None:
        """By Ctrl-C or ``query.stop()``: Spark kills some tasks at once and others late.

        The driver aborts meanwhile, with a pause for the late ones.
        """
        world = self._world
        self.is_cancelled = True
        running = [one for one in self.attempts if one in world.attempts]
        late = [one for one in running if world.dice.random() < 0.5]
        gone = [one for one in running if one not in late]
        gone += [self._ending] if self._ending is not None else []
        world.kill(gone)
        self.end(KeyboardInterrupt())
        assert self._ending is not None
        self._ending.before_pause = lambda: world.kill(late)


class World:
    """Brokers, attempts, and random events. The numbers are their probabilities."""

    lost, slept, repeated = 0.02, 0.001, 0.05

    def __init__(self, dice: random.Random) -> None:
        self.dice = dice
        self.brokers = Brokers(dice)
        self.attempts: list[Attempt] = []
        self._copies: list[Attempt] = []

    def step(self, batches: list[Batch]) -> None:
        chance = self.dice.random()
        if chance < 0.25:
            self.brokers_move(chance)
        elif chance < 0.5 and batches:
            self.dice.choice(batches).move()
        elif self.attempts:
            attempt = self.dice.choice(self.attempts)
            attempt.move()
            if attempt.ended:
                self.attempts.remove(attempt)
                self._check_copy(attempt)

    def brokers_move(self, chance: float) -> None:
        if chance < self.lost and self.attempts:
            self.attempts.pop(self.dice.randrange(len(self.attempts)))  # killed, or lost
        elif chance < self.lost + self.slept:
            self.brokers.time_out()
        else:
            self.brokers.tick()

    def come_to_rest(self) -> None:
        run_to_end(self.attempts, self.brokers, self.dice)
        for attempt in self.attempts:
            self._check_copy(attempt)
        self.brokers.settle()

    def kill(self, some: list[Attempt]) -> None:
        self.attempts = [one for one in self.attempts if one not in some]

    def is_committed(self, tasks: list[Attempt]) -> None:
        """The batch of these tasks was committed: their copies must not stay open."""
        self._copies = [one for one in tasks if not one.ended]
        for one in tasks:
            if one.result is not None:
                self.check_closed(one, "when its batch was committed")

    def _check_copy(self, ended: Attempt) -> None:
        """Skipped while the next decision is being stored: its driver lists again."""
        if ended in self._copies and not self.brokers.is_changing(LAYOUT):
            self.check_closed(ended, "by a copy after its batch was committed")

    def check_closed(self, attempt: Attempt, when: str) -> None:
        for name, epoch in attempt.epochs.items():
            if self.brokers.is_open(name, epoch):
                self.brokers.undecided.append(f"{name} stays open {when}")


class Job(World):
    """A job with several batches. ``modes``: whether its runs are atomic.

    When a driver dies or fails, another run resumes from the checkpoint. With ``cancels`` drivers
    are cancelled. With ``operator`` open transactions are committed and aborted at any moment, as
    ``kprod transactions`` does.
    """

    def __init__(
        self, seed: int, *modes: bool, cancels: bool = False, operator: bool = False
    ) -> None:
        super().__init__(random.Random(seed))
        self.runs = 0
        self._modes = modes
        self._cancels = cancels
        self._operator = operator
        self._checkpoint = 0
        self._start_run(self.dice.choice(SHARDS))

    def _start_run(self, shards: int) -> None:
        """Start a new driver; some tasks of the old one are still running."""
        self._shards, self._is_atomic = shards, self.dice.choice(self._modes)
        self.kill([one for one in self.attempts if self.dice.random() < 0.5])
        self._begin()

    def _begin(self, *, again: bool = False) -> None:
        """Start the batch. ``_held`` are the transactions that are open now."""
        looks = not self._is_atomic and not again
        names = [name for name in self.brokers.open if "/" in name] if looks else []
        self._held = {(name, self.brokers.epochs[name]) for name in names}
        number = self._checkpoint
        of = Shard(
            prefix="p", job="j", number=0, batch=number, shards=self._shards, topic="t",
            run=str(self.runs),
        )  # fmt: skip
        self._batch = Batch(self, rows(batch=number), of, is_atomic=self._is_atomic)

    def play(self) -> list[str]:
        """Run to the end; returns the violations."""
        for _ in range(MOST_MOVES):
            batch, died = self._batch, self.dice.random() < 0.004
            if batch.error is not None or died:
                refused = isinstance(batch.error, ShardCountChanged)
                begun_with = getattr(batch.error, "begun_with", 0) if refused else 0
                self.runs += 1
                self._start_run(begun_with or self.dice.choice(SHARDS))
            elif batch.reported:
                if self._is_done():
                    return self._violations()
            elif self._cancels and batch.is_atomic and not batch.is_cancelled and self._cancel():
                batch.cancel()
            else:
                self.step([batch])
        return [f"stuck in batch {self._checkpoint}", *self.brokers.undecided]

    def _cancel(self) -> bool:
        return self.dice.random() < 0.001

    def _is_done(self) -> bool:
        """Check that readers see the batch. The checkpoint may miss it."""
        for name, epoch in sorted(self._held):
            if self.brokers.is_open(name, epoch):
                self.brokers.undecided.append(f"{name} stays open in front of a batch that is done")
        saved = self.dice.random() < 0.8
        self._checkpoint += saved
        if self._checkpoint < BATCHES:
            self._begin(again=not saved)
        return self._checkpoint == BATCHES

    def brokers_move(self, chance: float) -> None:
        if self._operator and self.dice.random() < 0.02:
            job = LAYOUT.removesuffix(".layout")
            ending = commit_by_hand(job) if self.dice.random() < 0.5 else abort_by_hand(job)
            of = Shard(prefix="p", job="j", number=0, batch=0, shards=None, topic="t")
            self.attempts.append(Attempt(ending, of, [], self.brokers))
        else:
            super().brokers_move(chance)

    def _violations(self) -> list[str]:
        self.come_to_rest()
        wrong = sorted(set(self.brokers.undecided)) if any(self._modes) else []
        for batch in range(BATCHES):
            for row in range(ROWS):
                times = self.brokers.log[batch, row, row, 0]
                if times != 1:
                    wrong.append(f"row {row} of batch {batch} is stored {times} times")
        return wrong


def commit_by_hand(job_name: str) -> Ending:
    """``kprod transactions commit`` of the open transactions that it does not refuse."""
    found: list[PreparedTransaction] = yield ListOpen(job_name, idle=True)
    chosen = []
    for one in found:
        layout: Marker | None = yield ReadMarker(f"{job_name}.layout")
        name, number, epoch = one[:3]
        described = OpenTransaction(name, number, epoch, "Ongoing", 0, 0, ())
        if spark_batches.refusal(described, _offsets_of(f"{job_name}.layout", layout)) is None:
            chosen.append(one)
    yield EndAll(tuple(chosen), committed=True)
    return Ended(committed=True, by_us=True)


def abort_by_hand(job_name: str) -> Ending:
    """``kprod transactions abort`` with the job's name as the prefix."""
    found: list[PreparedTransaction] = yield ListOpen(job_name, idle=True)
    yield FenceAll(tuple(one.transactional_id for one in found))
    return Ended(committed=False, by_us=True)


def _offsets_of(name: str, marker: Marker | None) -> Callable[[str], dict[TopicPartition, Any]]:
    def offsets_of(group: str) -> dict[TopicPartition, Any]:
        if marker is None or group != name:
            return {}
        return {TopicPartition("t", 0): GroupOffset(marker.offset, marker.metadata)}

    return offsets_of


class Situation(StrEnum):
    """How the second call under a name relates to the first one."""

    TWO_DRIVERS = "two drivers at the same time, each with rows of its own"
    CANCELLED = "the first driver is cancelled, its tasks run on; the second one has other rows"
    OTHER_ROWS = "the first driver dies; a restart computes some of the rows otherwise"
    OLD_NAME = "a new checkpoint under the name of an old one: batch 0 comes with other rows"
    SECOND_TOPIC = "the same rows to a second topic, with markers for one topic"
    EXPIRED = "a restart after brokers have forgotten offsets, the oldest first"


class Calls(World):
    """Calls with one name, sequential or concurrent: no rows are lost without an error.

    Delivery and number of shards mostly stay the same; ``is_atomic`` fixes the delivery.
    """

    lost, slept, repeated = 0.003, 0.0005, 0.0

    def __init__(self, seed: int, situation: Situation, *, is_atomic: bool | None = None) -> None:
        super().__init__(random.Random(f"{seed} {situation.name}"))
        self.situation = situation
        self._forgotten = "nothing"
        self._waits_for_first = self.dice.random() < 0.5
        self._shards = self.dice.choice(SHARDS)
        self._modes = [is_atomic] if is_atomic is not None else [False, True]
        self._is_atomic = self.dice.choice(self._modes)
        self.calls = [self._call(rows())]

    def _call(self, rows: Rows) -> Batch:
        shards, is_atomic = self._shards, self._is_atomic
        if self.situation is not Situation.EXPIRED and self.dice.random() < 0.2:
            shards = self.dice.choice(SHARDS)
        if self.dice.random() < 0.4:
            is_atomic = self.dice.choice(self._modes)
        of = Shard(
            prefix="p", job="j", number=0, batch=0, shards=shards, topic="markers",
            run=str(self.dice.random()), target=str(rows.topic),
        )  # fmt: skip
        return Batch(self, rows, of, is_atomic=is_atomic)

    def play(self) -> list[str]:
        """Run to the end; returns the violations."""
        for _ in range(MOST_MOVES):
            self._maybe_call_again()
            running = [call for call in self.calls if not call.ended]
            if not running and len(self.calls) > 1:
                break
            self.step(running)
        return self._violations()

    def _maybe_call_again(self) -> None:
        """Start the second call, and retry failed ones."""
        first, last = self.calls[0], self.calls[-1]
        if len(self.calls) > 1:
            failed = last.gone or last.error is not None
            if failed and len(self.calls) < MOST_CALLS:
                self.calls.append(self._call(last.rows))
            return
        due = self.dice.random() < 0.01
        match self.situation:
            case Situation.TWO_DRIVERS | Situation.SECOND_TOPIC:
                due = first.ended if self._waits_for_first else due
            case _:
                due = first.ended or (due and not self._waits_for_first)
                first.gone = first.gone or (due and not first.ended)
        if due:
            if self.situation is Situation.EXPIRED:
                self._expire()
            self.calls.append(self._call(self._rows_of_second(first.rows)))

    def _rows_of_second(self, first: Rows) -> Rows:
        match self.situation:
            case Situation.EXPIRED:
                return first
            case Situation.OTHER_ROWS:
                return first.otherwise(self.dice)
            case Situation.SECOND_TOPIC:
                return replace(first, topic=1)
            case _:
                return rows(100)

    def _expire(self) -> None:
        """A week later: open transactions have ended, and some offsets are forgotten."""
        self.attempts.clear()
        self.brokers.settle()
        known = len(self.brokers.groups)
        forgets = self.dice.randint(0, known)
        self.brokers.expire(forgets)
        self._forgotten = "all" if forgets == known else "a part" if forgets else "nothing"

    def _violations(self) -> list[str]:
        self.come_to_rest()
        stored: Counter[tuple[int, int]] = Counter()
        for (_, row, _, topic), count in self.brokers.log.items():
            stored[topic, row] += count
        wrong = [f"{call.rows} is stuck" for call in self.calls if not call.ended]
        for call in self.calls:
            times = [stored[call.rows.topic, one] for one in call.rows.ids]
            if call.reported and 0 in times:
                wrong.append(f"{times.count(0)} rows were reported as stored, and are lost")
            if max(times) > 1 and not self._may_double(times):
                wrong.append(f"rows are stored {max(times)} times")
        return wrong

    def _may_double(self, times: list[int]) -> bool:
        """Allowed when brokers have forgotten all offsets, or when every call has failed."""
        if self._forgotten == "all":
            return max(times) <= 2
        has_others = self.situation is Situation.OTHER_ROWS
        return has_others and not any(one.reported for one in self.calls)
