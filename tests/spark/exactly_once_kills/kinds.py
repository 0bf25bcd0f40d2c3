"""The kinds of kills, and at which request of a job each of them strikes."""

from __future__ import annotations

import os
import random
import signal
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from kprod.broker.protocol.api_key import ApiKey
from tests.spark.exactly_once_kills.clusters import Cluster
from tests.spark.exactly_once_kills.request_watch import Moment, Sender
from tests.spark.exactly_once_kills.sessions import Session
from tests.spark.kills import spark_children
from tests.support.frozen import freeze, thaw

LOCAL = {"worker": 4, "driver": 2, "shards": 2, "broker": 2, "coordinator": 2, "freeze": 2,
         "shuffle": 3}  # fmt: skip
CLUSTER = {"executor": 3, "worker": 1, "freeze": 1, "shuffle": 1}
STANDALONE = {"slow": 2, "overtaken": 2, "crossing": 2, "executor": 1, "freeze": 1}
CONNECT = {"worker": 3, "broker": 1, "coordinator": 1, "freeze": 1, "shuffle": 1}
COPYING = ("slow", "overtaken", "crossing")
DECKS = {"local": LOCAL, "local-cluster": CLUSTER, "standalone": STANDALONE, "connect": CONNECT}
"""Kinds by session, as many cards of each in a deck: those that make sense there.

Copies of tasks need a standalone cluster: Spark starts none on the host that the task is on, and
``local-cluster`` has one host.
"""
APIS = {
    ApiKey.INIT_PRODUCER_ID: 3,
    ApiKey.OFFSET_FETCH: 2,
    ApiKey.PRODUCE: 2,
    ApiKey.ADD_OFFSETS_TO_TXN: 1,
    ApiKey.TXN_OFFSET_COMMIT: 3,
    ApiKey.END_TXN: 5,
}
LISTING = {ApiKey.LIST_TRANSACTIONS: 1, ApiKey.DESCRIBE_TRANSACTIONS: 1}
SHORT_TIMEOUT_MS = 4_000
BEYOND = 1.5
"""Seconds that something frozen stays so after its transaction's time-out."""
LATE = 1.5
COPIES = 8.0
"""Seconds that a task waits for its copy."""


@dataclass(frozen=True, slots=True)
class Case:
    """One kill, as its seed says."""

    seed: int
    kind: str
    delivery: str
    surface: str
    shards: int
    moment: Moment
    late: float
    other_shards: int


def draw(seed: int, kind: str, delivery: str, surfaces: tuple[str, ...]) -> Case:
    """The case of this seed."""
    dice = random.Random(f"{seed} {kind} {delivery}")
    may_end = kind not in ("driver", "shards", "broker", "coordinator", "freeze")
    surface = dice.choice((*surfaces, "call") if may_end and len(surfaces) > 1 else surfaces)
    shards = dice.randint(2, 5)
    apis = APIS | (LISTING if delivery == "atomic" else {})
    api = dice.choices(list(apis), list(apis.values()))[0]
    number = 1 if api in LISTING else dice.randint(1, shards + 1)
    answered = dice.random() < 0.5
    moment = Moment(api, number, answered, dropped=not answered and dice.random() < 0.4)
    other = dice.choice([n for n in range(2, 6) if n != shards]) if kind == "shards" else shards
    late = dice.choice((0.0, 0.0, dice.uniform(0.1, LATE)))
    if kind in COPYING:
        shards = other = 2  # the copy needs a free core beside the task
        late, api = 0.0, dice.choice((ApiKey.PRODUCE, ApiKey.TXN_OFFSET_COMMIT, ApiKey.END_TXN))
        moment = Moment(api, dice.randint(1, 2), answered=False, dropped=False)
    return Case(seed, kind, delivery, surface, shards, moment, late, other)


class Killer:
    """Does what a case says, when its moment comes. ``killed``: it was possible."""

    def __init__(self, case: Case, session: Session, cluster: Cluster) -> None:
        self._case = case
        self._session = session
        self._cluster = cluster
        self._dice = random.Random(case.seed)
        self.killed = False

    def __call__(self, sender: Sender) -> None:
        acts: Mapping[str, Callable[[Sender], bool]] = {
            "worker": self._worker,
            "executor": self._executor,
            "driver": self._driver,
            "shards": self._driver,
            "broker": self._restart,
            "coordinator": self._move,
            "freeze": self._freeze,
            "slow": self._slow,
            "overtaken": self._overtaken,
            "crossing": self._crossing,
            "shuffle": self._shuffle,
        }
        self.killed = acts[self._case.kind](sender)
        time.sleep(self._case.late)

    def _worker(self, sender: Sender) -> bool:
        workers = spark_children(self._session.driver.pid)["worker"]
        return _kill(self._dice.choice(workers) if sender.process is None else sender.process)

    def _executor(self, sender: Sender) -> bool:
        """The one that the worker belongs to: its grandparent, behind the daemon of workers."""
        executors = spark_children(self._session.driver.pid)["executor"]
        if sender.process is not None:
            known = _ancestors(sender.process)
            executors = [one for one in known if _is_executor(one)] or executors
        return bool(executors) and _kill(self._dice.choice(executors))

    def _driver(self, _: Sender) -> bool:
        self._session.kill()
        return True

    def _restart(self, _: Sender) -> bool:
        self._cluster.restart()
        return True

    def _move(self, _: Sender) -> bool:
        self._cluster.move_coordinators()
        return True

    def _freeze(self, sender: Sender) -> bool:
        if sender.process is None:
            return False
        with suppress(ProcessLookupError, FileNotFoundError):
            freeze(sender.process)
            time.sleep(SHORT_TIMEOUT_MS / 1000 + BEYOND)
            thaw(sender.process)
            return True
        return False

    def _slow(self, _: Sender) -> bool:
        """The task waits for an answer; Spark starts a copy beside it meanwhile."""
        time.sleep(self._dice.uniform(1.0, 2.5))
        return True

    def _overtaken(self, sender: Sender) -> bool:
        """The task waits until its copy has ended a transaction, and goes on then."""
        watch, ended = self._cluster.watch, threading.Event()
        watch.arm(_ended(), lambda _: ended.set(), lambda other: _is_copy(other, sender))
        return watch.await_event(ended, COPIES)

    def _crossing(self, sender: Sender) -> bool:
        """The task waits until its copy asks for the id, and the copy until the task has ended."""
        watch, asked, ended = self._cluster.watch, threading.Event(), threading.Event()

        def hold_copy(_: Sender) -> None:
            watch.arm(_ended(), lambda _: ended.set(), lambda other: other == sender)
            asked.set()
            watch.await_event(ended, COPIES)

        asks = Moment(ApiKey.INIT_PRODUCER_ID, 1, answered=False, dropped=False)
        watch.arm(asks, hold_copy, lambda other: _is_copy(other, sender))
        return watch.await_event(asked, COPIES)

    def _shuffle(self, _: Sender) -> bool:
        return self._session.lose_shuffles() > 0


def _ended() -> Moment:
    return Moment(ApiKey.END_TXN, 1, answered=True, dropped=False)


def _is_copy(other: Sender, of: Sender) -> bool:
    return other.shard == of.shard and other.process != of.process


def _is_executor(process: int) -> bool:
    with suppress(OSError):
        return b"CoarseGrainedExecutorBackend" in Path(f"/proc/{process}/cmdline").read_bytes()
    return False


def takes_part(kind: str) -> Callable[[Sender], bool]:
    """Which requests count for a kind: those of tasks that write a shard, where it has a copy."""
    if kind in COPYING:
        return lambda sender: sender.shard is not None and sender.process is not None
    return lambda _: True


def _kill(process: int) -> bool:
    with suppress(ProcessLookupError):
        os.kill(process, signal.SIGKILL)
        return True
    return False


def _ancestors(process: int) -> list[int]:
    found = []
    with suppress(OSError):
        while process > 1:
            stat = Path(f"/proc/{process}/stat").read_text()
            process = int(stat.rpartition(")")[2].split()[1])
            found.append(process)
    return found
