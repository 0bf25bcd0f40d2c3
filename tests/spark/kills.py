"""Drivers that write one job after the other, and what kills parts of them at any moment."""

from __future__ import annotations

import json
import os
import queue
import random
import re
import signal
import subprocess
import threading
import time
from collections import Counter, deque
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, Protocol

KILLS_A_JOB = 4
"""After as many the job is left in peace, so that it ends and can be judged."""
KINDS = {"worker": 11, "executor": 2, "driver": 1, "broker": 2}
"""What is killed, and how often beside the others: as many cards of each are in the deck."""

DAEMON = re.compile(r"daemon pyspark\.")
"""Of Python workers, and they themselves, which are forks of it."""


class KillableBroker(Protocol):
    def kill(self) -> None: ...

    def start(self) -> None: ...


def spark_children(driver: int) -> dict[str, list[int]]:
    """The processes of a driver by kind: Python workers, and executors of ``local-cluster``."""
    parents: dict[int, int] = {}
    lines: dict[int, str] = {}
    for found in Path("/proc").glob("[0-9]*"):
        with suppress(OSError, IndexError, ValueError):
            pid = int(found.name)
            parents[pid] = int((found / "stat").read_text().rpartition(")")[2].split()[1])
            lines[pid] = (found / "cmdline").read_text().replace("\0", " ")

    def ours(pid: int) -> bool:
        while pid > 1 and pid != driver:
            pid = parents.get(pid, 0)
        return pid == driver

    mine = {pid: line for pid, line in lines.items() if ours(pid)}
    daemons = {pid for pid, line in mine.items() if DAEMON.search(line)}
    return {
        "worker": [pid for pid in daemons if parents[pid] in daemons],
        "executor": [p for p, line in mine.items() if "CoarseGrainedExecutorBackend" in line],
    }


class Driver:
    """A driver that writes one job after the other; what it says of them is read meanwhile."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process
        self._killed = False
        self.pid = self._process.pid
        self._said: queue.SimpleQueue[dict[str, Any]] = queue.SimpleQueue()
        self._ready = threading.Event()  # set at its end, too
        self._began = False
        self._errors: deque[str] = deque(maxlen=60)
        self._readers = [threading.Thread(target=t) for t in (self._read, self._read_errors)]
        for reader in self._readers:
            reader.start()

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            if line.startswith("{"):
                self._said.put(json.loads(line))
            elif line.startswith("ready"):
                self._began = True
                self._ready.set()
        self._ready.set()

    def _read_errors(self) -> None:
        """A pipe that nobody empties would stop the driver."""
        assert self._process.stderr is not None
        self._errors.extend(self._process.stderr)

    def await_ready(self) -> None:
        """AssertionError, with what it said, when it has ended instead."""
        assert self._ready.wait(300)
        if not self._began:
            self._process.wait(60)
            self._readers[1].join(60)
        assert self._began, "".join(self._errors)

    def check(self) -> None:
        """AssertionError if a job failed."""
        assert self._process.poll() in (None, 0), "".join(self._errors)

    def await_end(self) -> None:
        """Let it write the jobs that are left. AssertionError if one of them failed."""
        self._process.wait(900)
        self.check()

    @property
    def runs(self) -> bool:
        return self._process.poll() is None

    def tell(self, job: dict[str, Any]) -> None:
        """Give it a job, as a line of JSON on its standard input."""
        assert self._process.stdin is not None
        with suppress(BrokenPipeError):
            self._process.stdin.write(json.dumps(job) + "\n")
            self._process.stdin.flush()

    def ended(self) -> int:
        """How many jobs have ended, and were not taken by ``said``."""
        return self._said.qsize()

    def said(self) -> list[dict[str, Any]]:
        """The jobs that have ended since the last call."""
        found = []
        with suppress(queue.Empty):
            while True:
                found.append(self._said.get_nowait())
        return found

    def kill(self) -> None:
        """End it, its virtual machine and its executors at once. A second call does nothing."""
        if self._killed:
            return
        self._killed = True
        with suppress(ProcessLookupError):
            os.killpg(self.pid, signal.SIGKILL)
        self._process.wait()
        for reader in self._readers:
            reader.join()
        for pipe in (self._process.stdin, self._process.stdout, self._process.stderr):
            assert pipe is not None
            with suppress(BrokenPipeError):
                pipe.close()


class Kills:
    """Seeded kills, and the account of what came of them.

    Kinds are drawn from a deck of cards that is shuffled anew when it is empty, so that each of
    them has its turn, however the dice fall.
    """

    def __init__(self, seed: int, most: int, kinds: Mapping[str, int] = KINDS) -> None:
        self._kinds = kinds
        self._choose = random.Random(seed)
        self._most = most
        self._deck: list[str] = []
        self.counted: Counter[str] = Counter()

    @property
    def enough(self) -> bool:
        return self.counted.total() >= self._most

    def harass(self, driver: Driver, broker: KillableBroker) -> bool:
        """Kill parts of job after job until there were enough, or the driver has ended.

        True if it was the driver that was killed.
        """
        harassed, killed = 0, 0  # which job, and how often
        while driver.runs and not self.enough:
            time.sleep(self._choose.uniform(0.05, 1.0))  # a kill at any moment of a job
            if driver.ended() > harassed:
                harassed, killed = driver.ended(), 0
            if killed == KILLS_A_JOB or not driver.runs:
                continue
            kind = self._drawn()
            if not self._kill(kind, driver, broker):
                self._deck.append(kind)  # none is there now: it is the next one's turn again
                continue
            self.counted[kind] += 1
            killed += 1
            if kind == "driver":
                return True
        return False

    def _drawn(self) -> str:
        if not self._deck:
            self._deck = [kind for kind, cards in self._kinds.items() for _ in range(cards)]
            self._choose.shuffle(self._deck)
        return self._deck.pop()

    def _kill(self, kind: str, driver: Driver, broker: KillableBroker) -> bool:
        if kind == "driver":
            driver.kill()
            return True
        if kind == "broker":
            broker.kill()
            broker.start()
            return True
        targets = spark_children(driver.pid)[kind]
        if targets:
            with suppress(ProcessLookupError):
                os.kill(self._choose.choice(targets), signal.SIGKILL)
                return True
        return False
