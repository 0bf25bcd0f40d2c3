"""Workers, executors, drivers and the broker are killed, and nothing is lost.

A driver that was killed is started again, with the job it was at, as a scheduler would do it.
``KPROD_CAMPAIGN=long``, as ``make campaign`` runs it; ``KPROD_SPARK_KILLS`` kills (200), chosen by
``KPROD_SPARK_SEED``.
"""

from __future__ import annotations

import json
import os
import queue
import random
import signal
import threading
import time
from collections import Counter, deque
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from tests.spark.driver_process import OF_CAMPAIGNS, SETTINGS, every_row, job, values
from tests.support.broker_process import BrokerProcess

pytestmark = OF_CAMPAIGNS

KILLS = int(os.environ.get("KPROD_SPARK_KILLS", "200"))
SEED = int(os.environ.get("KPROD_SPARK_SEED", "20"))
JOBS = 6
KILLS_A_JOB = 4
"""After as many the job is left in peace, so that it ends and can be judged."""
KINDS = {"worker": 11, "executor": 2, "driver": 1, "broker": 2}
"""What is killed, and how often beside the others: as many cards of each are in the deck."""
ROWS = 6_000
TASKS = 8
"""As ``JOB`` cuts the rows: each task has as many of them, one after the other."""

MANY = """
print("ready", flush=True)
for number in range(given["first"], given["jobs"]):
    result = write(frame, f"run-{number}", bootstrap_servers=servers,
                   max_records_per_second=given["rate"], progress=False)
    print(json.dumps({"job": number, "tasks": [shard.task for shard in result.shards],
                      "attempts": [shard.attempt + 1 for shard in result.shards]}), flush=True)
"""


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
    daemons = {pid for pid, line in mine.items() if "pyspark.daemon" in line}
    return {
        "worker": [pid for pid in daemons if parents[pid] in daemons],
        "executor": [p for p, line in mine.items() if "CoarseGrainedExecutorBackend" in line],
    }


class Driver:
    """A driver that writes one job after the other; what it says of them is read meanwhile."""

    def __init__(self, given: dict[str, Any]) -> None:
        self._process = job(MANY, given)
        self._killed = False
        self.pid = self._process.pid
        self._said: queue.SimpleQueue[dict[str, Any]] = queue.SimpleQueue()
        self._ready = threading.Event()
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
                self._ready.set()
        self._ready.set()

    def _read_errors(self) -> None:
        """A pipe that nobody empties would stop the driver."""
        assert self._process.stderr is not None
        self._errors.extend(self._process.stderr)

    def await_ready(self) -> None:
        """AssertionError, with what it said, when it has ended instead."""
        assert self._ready.wait(300)
        self.check()

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
        for pipe in (self._process.stdout, self._process.stderr):
            assert pipe is not None
            pipe.close()


class Kills:
    """Seeded kills, and the account of what came of them.

    Kinds are drawn from a deck of cards that is shuffled anew when it is empty, so that each of
    them has its turn, however the dice fall.
    """

    def __init__(self, seed: int, most: int) -> None:
        self._choose = random.Random(seed)
        self._most = most
        self._deck: list[str] = []
        self.counted: Counter[str] = Counter()
        self.jobs = self.duplicates = self.attempts_more = self.started_again = 0

    @property
    def enough(self) -> bool:
        return self.counted.total() >= self._most

    def harass(self, driver: Driver, broker: BrokerProcess) -> bool:
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
            self._deck = [kind for kind, cards in KINDS.items() for _ in range(cards)]
            self._choose.shuffle(self._deck)
        return self._deck.pop()

    def _kill(self, kind: str, driver: Driver, broker: BrokerProcess) -> bool:
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

    def judge(self, told: dict[str, Any], servers: str, started_again: bool) -> None:
        """A job that has ended: nothing is lost, and nothing twice but of tasks that ran again.

        Of a job whose driver was killed every task may have run before.
        """
        found = values(servers, f"run-{told['job']}")
        assert set(found) == set(every_row(ROWS)), told
        assert told["tasks"] == list(range(TASKS))
        self.jobs += 1
        self.duplicates += found.total() - ROWS
        self.attempts_more += sum(told["attempts"]) - TASKS
        self.started_again += started_again
        if not started_again:
            for row in range(ROWS):
                assert found[b"row %d" % row] <= told["attempts"][row * TASKS // ROWS], (row, told)


def harassed_run(kills: Kills, folder: Path) -> None:
    """A broker, and ``JOBS`` jobs on it, by as many drivers as it takes; then all are judged."""
    given = {"settings": SETTINGS, "rows": ROWS, "rate": 4_000, "jobs": JOBS}
    given |= {"master": "local-cluster[2,1,1024]"}
    ended: list[dict[str, Any]] = []
    started_again: set[int] = set()
    with BrokerProcess(folder, {f"run-{number}": 3 for number in range(JOBS)}) as broker:
        while len(ended) < JOBS:
            more = {"first": len(ended), "servers": broker.bootstrap_servers}
            driver = Driver(given | more)
            try:
                driver.await_ready()
                was_killed = kills.harass(driver, broker)
                if not was_killed:
                    driver.await_end()
            finally:
                driver.kill()
            ended += driver.said()
            assert was_killed or len(ended) == JOBS
            if was_killed:
                started_again.add(len(ended))
        for told in ended:
            kills.judge(told, broker.bootstrap_servers, told["job"] in started_again)


def test_kills_lose_nothing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """``KILLS`` seeded kills of workers, executors and drivers, and restarts of the broker."""
    kills, runs = Kills(SEED, KILLS), 0
    while not kills.enough:
        runs += 1
        harassed_run(kills, tmp_path / f"log-{runs}")
        with capsys.disabled():
            print(f"\nrun {runs}: {dict(kills.counted)}", flush=True)
    with capsys.disabled():
        print(
            f"\nseed {SEED}: {dict(kills.counted)} kills; {kills.jobs} jobs ended,"
            f" {kills.started_again} of them by another driver, {kills.attempts_more} attempts"
            f" more than tasks, {kills.duplicates} rows twice, none lost"
        )
    if sum(KINDS.values()) <= KILLS:
        assert set(kills.counted) == set(KINDS)
