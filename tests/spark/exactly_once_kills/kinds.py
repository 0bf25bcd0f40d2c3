"""The kinds of kills, and the requests of a job at which they happen."""

from __future__ import annotations

import os
import random
import signal
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from kprod.broker.protocol.api_key import ApiKey
from tests.spark.exactly_once_kills.checks import Violation
from tests.spark.exactly_once_kills.clusters import Cluster
from tests.spark.exactly_once_kills.request_watch import Moment, Sender
from tests.spark.exactly_once_kills.sessions import Session
from tests.support.frozen import freeze, thaw

LOCAL = {"worker": 4, "driver": 2, "shards": 2, "broker": 2, "coordinator": 2, "freeze": 2,
         "shuffle": 3, "twins": 3, "cancel": 3, "delivery": 2}  # fmt: skip
CLUSTER = {"executor": 3, "worker": 1, "freeze": 1, "shuffle": 1, "twins": 1}
STANDALONE = {"slow": 2, "overtaken": 2, "crossing": 2, "executor": 1, "freeze": 1}
CONNECT = {"worker": 3, "driver": 1, "shards": 1, "broker": 1, "coordinator": 1, "freeze": 1,
           "shuffle": 1}  # fmt: skip
COPYING = ("slow", "overtaken", "crossing")
DECKS = {"local": LOCAL, "local-cluster": CLUSTER, "standalone": STANDALONE, "connect": CONNECT}
"""Kinds and their frequencies by session. Speculative copies need two hosts: standalone."""
APIS = {
    ApiKey.INIT_PRODUCER_ID: 3,
    ApiKey.OFFSET_FETCH: 2,
    ApiKey.PRODUCE: 2,
    ApiKey.TXN_OFFSET_COMMIT: 3,
    ApiKey.END_TXN: 5,
}
ADDITIONS = {ApiKey.ADD_PARTITIONS_TO_TXN: 2, ApiKey.ADD_OFFSETS_TO_TXN: 2}
"""Requests of transaction protocol 1 only."""
LISTING = {ApiKey.LIST_TRANSACTIONS: 1, ApiKey.DESCRIBE_TRANSACTIONS: 1}
SHORT_TIMEOUT_MS = 4_000
BEYOND = 1.5
"""Seconds that a process stays frozen after its transaction timeout."""
LATE = 1.5
COPIES = 8.0
"""Seconds that a task waits for its copy."""
STRIKES = {"worker": 5, "executor": 2, "driver": 2, "shards": 2, "broker": 3, "coordinator": 2,
           "freeze": 2, "slow": 3, "overtaken": 2, "crossing": 1, "shuffle": 4,
           "twins": 3,
           "cancel": 2, "delivery": 2}  # fmt: skip
"""The most kills of each kind in one job."""


@dataclass(frozen=True, slots=True)
class Case:
    """The kills of one job, chosen by its seed: one at each of ``moments``, in order."""

    seed: int
    kind: str
    delivery: str
    surface: str
    shards: int
    moments: tuple[Moment, ...]
    late: float
    other_shards: int


def draw(
    seed: int, kind: str, delivery: str, surfaces: tuple[str, ...], broker: str = "embedded"
) -> Case:
    """The case of this seed. Apache Kafka before 4.0 has transaction protocol 1."""
    dice = random.Random(f"{seed} {kind} {delivery}")
    may_end = kind not in (
        "driver", "shards", "broker", "coordinator", "freeze", "cancel", "delivery"
    )  # fmt: skip
    if kind == "cancel":  # PySpark continues a data source's job after Ctrl-C
        surfaces = tuple(one for one in surfaces if one != "source")
    surface = dice.choice((*surfaces, "call") if may_end and len(surfaces) > 1 else surfaces)
    surface = "twins" if kind == "twins" else surface
    shards = 2 if kind in COPYING else dice.randint(2, 5)  # a copy needs a free core beside it
    strikes = min(STRIKES[kind], 2) if surface == "call" else STRIKES[kind]  # a call must succeed
    apis = APIS | (LISTING if delivery == "atomic" else {})
    # After a kill there may be only one or two more requests, fewer than shards.
    apis |= ADDITIONS if broker.startswith("3.") else {}
    moments = tuple(_moment(dice, kind, apis, 1 if at else shards) for at in range(strikes))
    other = dice.choice([n for n in range(2, 6) if n != shards]) if kind == "shards" else shards
    late = 0.0 if kind in COPYING else dice.choice((0.0, 0.0, dice.uniform(0.1, LATE)))
    return Case(seed, kind, delivery, surface, shards, moments, late, other)


def _moment(dice: random.Random, kind: str, apis: Mapping[ApiKey, int], most: int) -> Moment:
    if kind in COPYING:
        api = dice.choice((ApiKey.PRODUCE, ApiKey.TXN_OFFSET_COMMIT, ApiKey.END_TXN))
        return Moment(api, dice.randint(1, 2), answered=False, dropped=False)
    api = dice.choices(list(apis), list(apis.values()))[0]
    number = 1 if api in LISTING else dice.randint(1, most + 1)
    answered = dice.random() < 0.5
    return Moment(api, number, answered, dropped=not answered and dice.random() < 0.4)


class Killer:
    """Kills at each moment of a case. ``killed`` counts the kills.

    ``check`` is called before each kill; ``violation`` is the Violation that it raised.
    """

    def __init__(
        self, case: Case, session: Session, cluster: Cluster, check: Callable[[], None]
    ) -> None:
        self._case = case
        self._session = session
        self._cluster = cluster
        self._check = check
        self._dice = random.Random(case.seed)
        self._moments = deque(case.moments)
        self.killed = 0
        self.violation: Violation | None = None

    def arm(self) -> None:
        if self._moments:
            self._cluster.watch.arm(self._moments[0], self, counts(self._case.kind))

    def __call__(self, sender: Sender) -> None:
        if self._case.kind not in ("broker", "coordinator"):  # brokers may just be starting
            try:
                self._check()
            except Violation as found:
                self.violation = found
        is_stream = self._case.surface in ("stream", "foreach")
        acts: Mapping[str, Callable[[Sender], object]] = {
            "worker": self._worker,
            "twins": self._worker,  # beside another writer of the same name
            "executor": self._executor,
            "driver": lambda _: self._session.kill(),
            "shards": lambda _: self._session.kill(),
            "broker": lambda _: self._cluster.restart(),
            "coordinator": lambda _: self._cluster.move_coordinators(),
            "freeze": self._freeze,
            "slow": self._slow,
            "overtaken": self._overtaken,
            "crossing": self._crossing,
            "shuffle": lambda _: self._session.lose_shuffles() > 0,
            "cancel": lambda _: self._session.cancel(stream=is_stream),
            "delivery": lambda _: self._session.kill(),
        }
        self.killed += acts[self._case.kind](sender) is not False
        time.sleep(self._case.late)
        self._moments.popleft()
        if self._case.kind != "cancel":  # a second Ctrl-C would hit the driver while it aborts
            self.arm()

    def _worker(self, sender: Sender) -> bool:
        return sender.process is not None and _kill(sender.process)

    def _executor(self, sender: Sender) -> bool:
        """The grandparent of the worker; the parent is the daemon of workers."""
        executors = _ancestors(sender.process or 0, b"CoarseGrainedExecutorBackend")
        return any(_kill(executor) for executor in executors)

    def _freeze(self, sender: Sender) -> bool:
        if sender.process is None:
            return False
        with suppress(ProcessLookupError, FileNotFoundError):
            freeze(sender.process)
            time.sleep(SHORT_TIMEOUT_MS / 1000 + BEYOND)
            thaw(sender.process)
            return True
        return False

    def _slow(self, sender: Sender) -> bool:
        """Delay the task until its copy has begun, so that both write."""
        watch, asked = self._cluster.watch, threading.Event()
        watch.arm(_asks(), lambda _: asked.set(), lambda other: _is_copy(other, sender))
        found = watch.await_event(asked, COPIES)
        time.sleep(self._dice.uniform(0.0, 0.5))
        return found

    def _overtaken(self, sender: Sender) -> bool:
        """Delay the task until its copy has ended a transaction."""
        watch, ended = self._cluster.watch, threading.Event()
        watch.arm(_ended(), lambda _: ended.set(), lambda other: _is_copy(other, sender))
        return watch.await_event(ended, COPIES)

    def _crossing(self, sender: Sender) -> bool:
        """Delay the task until its copy asks for an id, and the copy until the task ends."""
        watch, asked, ended = self._cluster.watch, threading.Event(), threading.Event()

        def hold_copy(_: Sender) -> None:
            watch.arm(_ended(), lambda _: ended.set(), lambda other: other == sender)
            asked.set()
            watch.await_event(ended, COPIES)

        watch.arm(_asks(), hold_copy, lambda other: _is_copy(other, sender))
        return watch.await_event(asked, COPIES)


def _ended() -> Moment:
    return Moment(ApiKey.END_TXN, 1, answered=True, dropped=False)


def _asks() -> Moment:
    return Moment(ApiKey.INIT_PRODUCER_ID, 1, answered=False, dropped=False)


def _is_copy(other: Sender, of: Sender) -> bool:
    return other.shard == of.shard and other.process != of.process


def counts(kind: str) -> Callable[[Sender], bool]:
    if kind in COPYING:
        return lambda sender: sender.shard is not None and sender.process is not None
    if kind in ("worker", "twins", "executor", "freeze"):
        return lambda sender: sender.process is not None
    return lambda _: True


def _kill(process: int) -> bool:
    with suppress(ProcessLookupError):
        os.kill(process, signal.SIGKILL)
        return True
    return False


def _ancestors(process: int, word: bytes) -> Iterator[int]:
    with suppress(OSError):
        while process > 1:
            stat = Path(f"/proc/{process}/stat").read_text()
            process = int(stat.rpartition(")")[2].split()[1])
            if word in Path(f"/proc/{process}/cmdline").read_bytes():
                yield process
