"""A driver that commits atomic batches, over the model of brokers and tasks: it commits, aborts.

Spark counts one result of each task, whichever it is. It calls ``commit`` again at times, and
``abort`` after a ``commit`` that failed; a driver that died may go on with either.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from kprod.spark.errors import ShardCountChanged
from kprod.spark.exactly_once import atomic
from kprod.spark.exactly_once.atomic import Ending
from kprod.spark.exactly_once.shard import Shard
from kprod.spark.exactly_once.steps import PreparedShard, Protocol
from tests.spark.exactly_once.model import PATIENCE, ROWS, Attempt, Driver, World

Prepare = Callable[[Shard, int, float], Protocol]
Commit = Callable[[Shard, int, Sequence[PreparedShard], float], Ending]
Abort = Callable[[Shard, Sequence[PreparedShard]], Ending]


@dataclass(frozen=True)
class Version:
    """The protocol, or a wrong version of it; ``name`` is that of what is wrong."""

    name: str = "right"
    prepare: Prepare = atomic.prepare
    commit: Commit = atomic.commit
    abort: Abort = atomic.abort


class AtomicDriver(Driver):
    """One run of the job. It fails as a query does: another run goes on from the checkpoint."""

    _world: AtomicWorld

    def _begin(self) -> None:
        self._ending: Attempt | None = None
        self._aborting = False
        self._prepared: list[PreparedShard] = []
        super()._begin()

    def _shard(self, number: int) -> Shard:
        return Shard(
            prefix="p", job="j", number=number, batch=self._world.checkpoint,
            shards=self.shards, topic="t", run=str(self._run),
        )  # fmt: skip

    def _start(self, number: int) -> Attempt:
        world = self._world
        shard = self._shard(number)
        again = self._tries[number] > 0 and world.dice.random() < 0.05
        self._tries[number] += 0 if again else 1  # a stage that runs again counts anew
        batch = world.checkpoint
        rows = [(batch, row) for row in range(ROWS) if hash((row, 7)) % self.shards == number]
        protocol = world.version.prepare(shard, self._tries[number] - 1, PATIENCE)
        attempt = Attempt(protocol, shard, rows, world.brokers)
        world.attempts.append(attempt)
        return attempt

    def move(self) -> None:
        if self._ending is None:
            self._look_after_tasks()
        elif self._ending.result is not None:
            self._has_ended()
        elif self._ending.error is not None or self._ending not in self._world.attempts:
            self._has_failed()

    def _look_after_tasks(self) -> None:
        world = self._world
        for number, attempts in self._tasks.items():
            if any(isinstance(one.error, ShardCountChanged) for one in attempts):
                errors = [one.error for one in attempts]
                self.refused = next(
                    e.begun_with for e in errors if isinstance(e, ShardCountChanged)
                )
                return
            running = [one for one in attempts if not one.ended and one in world.attempts]
            done = any(one.result is not None for one in attempts)
            if (not done and not running) or world.dice.random() < 0.005:
                attempts.append(self._start(number))
        found = [[a.result for a in one if a.result is not None] for one in self._tasks.values()]
        if all(found):
            counted = [world.dice.choice(results) for results in found]
            self._prepared = [one.prepared for one in counted if one.prepared is not None]
            fails = world.dice.random() < 0.05  # a task without a message: the job has failed
            self._end(aborting=fails)

    def _end(self, *, aborting: bool) -> None:
        world, version = self._world, self._world.version
        self._aborting = aborting
        of = self._shard(0)
        ending = (
            version.abort(of, self._prepared)
            if aborting
            else version.commit(of, self.shards, self._prepared, PATIENCE)
        )
        self._ending = Attempt(ending, of, [], world.brokers)
        world.attempts.append(self._ending)

    def _has_ended(self) -> None:
        assert self._ending is not None
        world = self._world
        if self._aborting:
            self.failed = True
        elif world.dice.random() < 0.1:
            self._end(aborting=False)  # once more, with the same messages
        else:
            world.finished()
            if not world.over:
                self._begin()

    def _has_failed(self) -> None:
        assert self._ending is not None
        if isinstance(self._ending.error, ShardCountChanged):
            self.refused = self._ending.error.begun_with
        elif self._aborting:
            self.failed = True
        else:
            self._end(aborting=True)


class AtomicWorld(World):
    """A job whose batches are atomic. ``brokers.undecided`` has what readers saw too early."""

    atomic = True

    def __init__(self, seed: int, version: Version) -> None:
        super().__init__(seed, atomic.prepare)
        self.version = version

    def driver(self, shards: int) -> AtomicDriver:
        return AtomicDriver(self, self.runs, shards)
