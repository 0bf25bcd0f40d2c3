"""Several calls under one name, over the model of brokers and tasks: no rows are lost in silence.

A call is a job of one batch: a driver that looks after its tasks, and what it tells at the end. Its
rows are its own, or those of the call before, as its ``Situation`` says.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum

from kprod.exactly_once.errors import ExactlyOnceError, TransactionTooSlow
from kprod.exactly_once.protocol import deliver
from kprod.exactly_once.shard import Shard
from kprod.exactly_once.steps import PreparedShard
from tests.spark.exactly_once.atomic_model import Version
from tests.spark.exactly_once.model import (
    PATIENCE,
    Attempt,
    Brokers,
    Deliver,
    Row,
    go_on,
    row_hash,
)

ROWS = 8
SHARDS = (2, 3)
MOST_CALLS = 5
MOST_FAILURES = 4
"""Of one task, before its call fails."""
MOST_MOVES = 8_000


class Situation(StrEnum):
    """How the second call under a name relates to the first one."""

    TWO_DRIVERS = "two drivers at the same time, each with rows of its own"
    CANCELLED = "the first driver is cancelled, its tasks go on; the second one has other rows"
    OTHER_ROWS = "the first driver dies; a restart computes some of the rows otherwise"
    OLD_NAME = "a new checkpoint under the name of an old one: batch 0 comes with other rows"
    SECOND_TOPIC = "the same rows to a second topic, with markers for one topic"
    EXPIRED = "a restart after brokers have forgotten offsets, the oldest first"


@dataclass(frozen=True)
class Rules:
    """The protocols, or wrong versions of them."""

    name: str = "right"
    deliver: Deliver = deliver
    atomic: Version = field(default_factory=Version)


@dataclass(frozen=True)
class Rows:
    """What a call writes: ``ids`` are compared by the judge, ``content`` is what places them."""

    ids: tuple[int, ...]
    content: tuple[int, ...]
    topic: int

    def of_shard(self, number: int, shards: int) -> list[Row]:
        found = zip(self.ids, self.content, strict=True)
        return [
            (0, one, content, self.topic)
            for one, content in found
            if row_hash((content,)) % shards == number
        ]

    def otherwise(self, dice: random.Random) -> Rows:
        """Some of them have another content; every shard keeps a row that has not."""
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


def _rows(first: int, topic: int = 0) -> Rows:
    """As many as others have, each shard with one at least."""
    ids = tuple(range(first, first + ROWS))
    return Rows(ids, ids, topic)


class Call:
    """``told``: it has said that all of its rows are there. ``error``: why it has not."""

    def __init__(self, world: NamesWorld, rows: Rows, shards: int, *, atomic: bool) -> None:
        self.rows = rows
        self.shards = shards
        self.atomic = atomic
        self.told = False
        self.error: Exception | None = None
        self.gone = False  # cancelled, or dead: it looks after nothing any more
        self._world = world
        self._run = str(world.dice.random())
        self._ending: Attempt | None = None
        self._failures: Counter[int] = Counter()
        self._tries: Counter[int] = Counter()
        self._prepared: list[PreparedShard] = []
        self._tasks: dict[int, list[Attempt]] = {
            number: [] for number in range(shards) if rows.of_shard(number, shards)
        }

    @property
    def ended(self) -> bool:
        return self.told or self.gone or self.error is not None

    def _shard(self, number: int) -> Shard:
        return Shard(
            prefix="p", job="j", number=number, batch=0, shards=self.shards, topic="markers",
            run=self._run, target=str(self.rows.topic),
        )  # fmt: skip

    def _start(self, number: int) -> None:
        world, shard = self._world, self._shard(number)
        attempt = self._tries[number]
        self._tries[number] += 1
        protocol = (
            world.rules.atomic.prepare(shard, attempt, PATIENCE)
            if self.atomic
            else world.rules.deliver(shard, PATIENCE)
        )
        rows = self.rows.of_shard(number, self.shards)
        self._tasks[number].append(Attempt(protocol, shard, rows, world.brokers))
        world.attempts.append(self._tasks[number][-1])

    def move(self) -> None:
        """Look after the tasks; after the batch, once they are done."""
        if self._ending is not None:
            self._look_after_end(self._ending)
            return
        world = self._world
        for number, attempts in self._tasks.items():
            if any(one.result is not None for one in attempts):
                continue
            errors = [one.error for one in attempts if one.error is not None]
            for error in errors:
                if isinstance(error, ExactlyOnceError) and not isinstance(
                    error, TransactionTooSlow
                ):
                    self._fail(error)
                    return
            if len(errors) >= MOST_FAILURES:
                self._fail(errors[-1])
                return
            running = [one for one in attempts if not one.ended and one in world.attempts]
            if not running or (len(running) == 1 and world.dice.random() < 0.01):
                self._start(number)
        found = [[a.result for a in one if a.result is not None] for one in self._tasks.values()]
        if all(found):
            prepared = [results[0].prepared for results in found]
            self._prepared = [one for one in prepared if one is not None]
            if self._prepared:
                self._end(aborting=False)
            else:
                self.told = True

    def _fail(self, error: Exception) -> None:
        if self.atomic:
            self._failure = error
            self._end(aborting=True)
        else:
            self.error = error

    def _end(self, *, aborting: bool) -> None:
        self._aborting = aborting
        of, version = self._shard(0), self._world.rules.atomic
        ending = (
            version.abort(of, self._prepared)
            if aborting
            else version.commit(of, self.shards, self._prepared, PATIENCE)
        )
        self._ending = Attempt(ending, of, [], self._world.brokers)
        self._world.attempts.append(self._ending)

    def _look_after_end(self, ending: Attempt) -> None:
        if ending.error is not None and not self._aborting:
            self._fail(ending.error)
        elif ending.error is not None or (ending.result is not None and self._aborting):
            self.error = ending.error or self._failure
        elif ending.result is not None:
            self.told = True
        elif ending not in self._world.attempts:
            self.gone = True


class NamesWorld:
    """Calls under one name, one after the other or at the same time, and what is stored then."""

    def __init__(self, seed: int, situation: Situation, rules: Rules) -> None:
        self.dice = random.Random(f"{seed} {situation.name}")
        self.brokers = Brokers(self.dice)
        self.situation = situation
        self.rules = rules
        self.attempts: list[Attempt] = []
        self.forgotten = "nothing"
        self._waits_for_first = self.dice.random() < 0.5
        self._shards = self.dice.choice(SHARDS)
        self._atomic = self.dice.random() < 0.5
        self.calls = [self._call(_rows(0))]

    def _call(self, rows: Rows) -> Call:
        """The delivery, and the number of shards, are mostly those of the call before."""
        shards, atomic = self._shards, self._atomic
        if self.situation is not Situation.EXPIRED and self.dice.random() < 0.2:
            shards = self.dice.choice(SHARDS)
        if self.dice.random() < 0.2:
            atomic = not atomic
        return Call(self, rows, shards, atomic=atomic)

    def play(self) -> list[str]:
        """To the end; what is wrong then."""
        for _ in range(MOST_MOVES):
            self._maybe_call_again()
            running = [call for call in self.calls if not call.ended]
            if not running and len(self.calls) > 1:
                break
            chance = self.dice.random()
            if chance < 0.25:
                self._brokers_move(chance)
            elif chance < 0.5 and running:
                self.dice.choice(running).move()
            elif self.attempts:
                self._move(self.dice.choice(self.attempts))
        return self._judge()

    def _move(self, attempt: Attempt) -> None:
        attempt.move()
        if attempt.ended:
            self.attempts.remove(attempt)

    def _brokers_move(self, chance: float) -> None:
        if chance < 0.003 and self.attempts:
            self.attempts.pop(self.dice.randrange(len(self.attempts)))
        elif chance < 0.0035:
            self.brokers.time_out()
        else:
            self.brokers.tick()

    def _maybe_call_again(self) -> None:
        """The second call; others when one has failed, or its driver has died."""
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
                return _rows(100)

    def _expire(self) -> None:
        """A week has passed: everything that was open has ended."""
        self.attempts.clear()
        self.brokers.settle()
        known = len(self.brokers.groups)
        forgets = self.dice.randint(0, known)
        self.brokers.expire(forgets)
        self.forgotten = "all" if forgets == known else "a part" if forgets else "nothing"

    def _judge(self) -> list[str]:
        go_on(self.attempts, self.brokers, self.dice)
        self.brokers.settle()
        stored: Counter[tuple[int, int]] = Counter()
        for (_, row, _, topic), count in self.brokers.log.items():
            stored[topic, row] += count
        wrong = [f"{call.rows} is stuck" for call in self.calls if not call.ended]
        for call in self.calls:
            times = [stored[call.rows.topic, one] for one in call.rows.ids]
            if call.told and 0 in times:
                wrong.append(f"{times.count(0)} rows were told to be there, and are lost")
            if max(times) > 1 and not self._may_double(call, times):
                wrong.append(f"rows are there {max(times)} times")
        return wrong

    def _may_double(self, call: Call, times: Sequence[int]) -> bool:
        """What nobody remembers is written once more; what was refused has been told."""
        if self.forgotten == "all":
            return max(times) <= 2
        return self.situation is Situation.OTHER_ROWS and not any(one.told for one in self.calls)
