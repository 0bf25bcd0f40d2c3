"""A driver that commits atomic batches, over the model of brokers and tasks: it commits, aborts.

Spark counts one result of each task, whichever it is. It calls ``commit`` again at times, and
``abort`` after a ``commit`` that failed; a driver that died may go on with either. An operator may
end transactions meanwhile, as ``kprod transactions`` does.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from kprod.admin import GroupOffset, OpenTransaction
from kprod.cli.spark_batches import OffsetsOf, refusal
from kprod.exactly_once import atomic, protocol
from kprod.exactly_once.atomic import Ended, Ending
from kprod.exactly_once.errors import ShardCountChanged
from kprod.exactly_once.marker import Marker
from kprod.exactly_once.shard import Shard
from kprod.exactly_once.steps import (
    EndAll,
    FenceAll,
    ListOpen,
    PreparedShard,
    Protocol,
    ReadMarker,
)
from kprod.transactional.two_phase_commit import PreparedTransaction
from kprod.types import TopicPartition
from tests.spark.exactly_once.model import (
    LAYOUT,
    PATIENCE,
    ROWS,
    Attempt,
    Deliver,
    Driver,
    Row,
    World,
)

Prepare = Callable[[Shard, int, float], Protocol]
Commit = Callable[[Shard, int, Sequence[PreparedShard], float], Ending]
Abort = Callable[[Shard, Sequence[PreparedShard]], Ending]
Refusal = Callable[[OpenTransaction, OffsetsOf], str | None]
AbortByHand = Callable[[str], Ending]


def commit_by_hand(job_name: str, refuses: Refusal = refusal) -> Ending:
    """``kprod transactions commit`` of every open transaction of the job that it does not refuse.

    The layout is read for each of them, and all are judged before the first one is committed.
    """
    found: list[PreparedTransaction] = yield ListOpen(job_name, idle=True)
    chosen = []
    for one in found:
        layout: Marker | None = yield ReadMarker(f"{job_name}.layout")
        if refuses(_described(one), _offsets_of({f"{job_name}.layout": layout})) is None:
            chosen.append(one)
    yield EndAll(tuple(chosen), committed=True)
    return Ended(committed=True, by_us=True)


def abort_by_hand(job_name: str) -> Ending:
    """``kprod transactions abort`` with the job's name as the prefix."""
    found: list[PreparedTransaction] = yield ListOpen(job_name, idle=True)
    yield FenceAll(tuple(one.transactional_id for one in found))
    return Ended(committed=False, by_us=True)


def _described(one: PreparedTransaction) -> OpenTransaction:
    return OpenTransaction(one.transactional_id, one.producer_id, one.epoch, "Ongoing", 0, 0, ())


def _offsets_of(markers: Mapping[str, Marker | None]) -> OffsetsOf:
    def offsets_of(group: str) -> dict[TopicPartition, GroupOffset]:
        marker = markers.get(group)
        if marker is None:
            return {}
        return {TopicPartition("t", 0): GroupOffset(marker.offset, marker.metadata)}

    return offsets_of


@dataclass(frozen=True)
class Version:
    """The protocol, or a wrong version of it; ``name`` is that of what is wrong."""

    name: str = "right"
    prepare: Prepare = atomic.prepare
    commit: Commit = atomic.commit
    abort: Abort = atomic.abort
    deliver: Deliver = protocol.deliver
    refuses: Refusal = refusal
    abort_by_hand: AbortByHand = abort_by_hand


class AtomicDriver(Driver):
    """One run of the job. It fails as a query does: another run goes on from the checkpoint."""

    _world: AtomicWorld

    def _begin(self) -> None:
        self._world.held = set()
        self._cancelled = False
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
        rows: list[Row] = [
            (batch, row) for row in range(ROWS) if hash((row, 7)) % self.shards == number
        ]
        preparing = world.version.prepare(shard, self._tries[number] - 1, PATIENCE)
        attempt = Attempt(preparing, shard, rows, world.brokers)
        world.attempts.append(attempt)
        return attempt

    def _cancel(self) -> None:
        """By Ctrl-C, or because the query is stopped: Spark kills the tasks, and some of them late.

        The driver aborts meanwhile. Its pause is longer than Spark takes to kill them.
        """
        world = self._world
        self._cancelled = True
        running = [one for tries in self._tasks.values() for one in tries if one in world.attempts]
        late = [one for one in running if world.dice.random() < 0.5]
        gone = [one for one in running if one not in late]
        if self._ending in world.attempts:
            gone.append(self._ending)
        world.attempts = [one for one in world.attempts if one not in gone]
        self._end(aborting=True)
        assert self._ending is not None
        self._ending.before_pause = lambda: world.kill(late)

    def _check_nothing_open(self) -> None:
        """What the tasks of a cancelled driver have begun is ended when its abort is done."""
        for one in (one for tries in self._tasks.values() for one in tries):
            self._world.check_closed(one, "after the driver was cancelled")

    def move(self) -> None:
        if self._world.changes and not self._cancelled and self._world.dice.random() < 0.004:
            self._cancel()
        elif self._ending is None:
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
            if world.dice.random() < 0.1:  # a copy whose start and whose kill are under way
                number = world.dice.randrange(self.shards)
                self._tasks[number].append(self._start(number))
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
            if self._cancelled and not self._ending.result.committed:
                self._check_nothing_open()
            self.failed = True
        elif world.dice.random() < 0.1:
            self._end(aborting=False)  # once more, with the same messages
        else:
            if self._ending.result.by_us:
                world.is_done([one for tries in self._tasks.values() for one in tries])
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


class OnceDriver(Driver):
    """One run of the job after its delivery was changed to ``exactly_once``."""

    _world: AtomicWorld
    _batch = -1

    def _begin(self) -> None:
        """A batch that comes once more to the same run is one in which it has looked."""
        brokers, again = self._world.brokers, self._batch == self._world.checkpoint
        self._batch = self._world.checkpoint
        prepared = {(name, brokers.epochs[name]) for name in brokers.open if "/" in name}
        self._world.held = set() if again else prepared
        super()._begin()


class AtomicWorld(World):
    """A job whose batches are atomic. ``brokers.undecided`` has what readers saw too early.

    With ``changes`` some of its runs have another delivery, and drivers are cancelled: ``held`` is
    what was open when the run at work began its batch. With ``operator`` somebody commits and
    aborts what is open, at any moment.
    """

    atomic = True
    held: set[tuple[str, int]]

    def __init__(
        self, seed: int, version: Version, *, changes: bool = False, operator: bool = False
    ) -> None:
        super().__init__(seed, version.deliver)
        self.version = version
        self.changes = changes
        self._copies: list[Attempt] = []
        self._operator = operator

    def driver(self, shards: int) -> Driver:
        if self.changes and self.dice.random() < 0.5:
            return OnceDriver(self, self.runs, shards)
        return AtomicDriver(self, self.runs, shards)

    def _brokers_move(self, chance: float) -> None:
        if self._operator and self.dice.random() < 0.02:
            self._end_by_hand()
        else:
            super()._brokers_move(chance)

    def _end_by_hand(self) -> None:
        version, job = self.version, LAYOUT.removesuffix(".layout")
        ending = (
            commit_by_hand(job, version.refuses)
            if self.dice.random() < 0.5
            else version.abort_by_hand(job)
        )
        of = Shard(prefix="p", job="j", number=0, batch=0, shards=None, topic="t")
        self.attempts.append(Attempt(ending, of, [], self.brokers))

    def finished(self) -> None:
        """Readers see the batch: nothing is open in front of it."""
        for name, epoch in sorted(self.held):
            if self.brokers.is_open(name, epoch):
                self.brokers.undecided.append(f"{name} stays open in front of a batch that is done")
        super().finished()

    def is_done(self, tasks: list[Attempt]) -> None:
        """The batch of these tasks is committed: what the others of them have prepared is not."""
        self._copies = [one for one in tasks if not one.ended]
        for one in tasks:
            if one.result is not None:
                self.check_closed(one, "when its batch was committed")

    def has_ended(self, attempt: Attempt) -> None:
        """The next decision, while it is being stored, hides this one; its driver lists again."""
        if attempt in self._copies and not self.brokers.is_changing(LAYOUT):
            self.check_closed(attempt, "by a copy after its batch was committed")

    def check_closed(self, attempt: Attempt, when: str) -> None:
        for name, epoch in attempt.epochs.items():
            if self.brokers.is_open(name, epoch):
                self.brokers.undecided.append(f"{name} stays open {when}")

    def kill(self, late: list[Attempt]) -> None:
        """These tasks end wherever they are."""
        self.attempts = [one for one in self.attempts if one not in late]
