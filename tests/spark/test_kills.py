"""Workers, executors, drivers and the broker are killed, and nothing is lost.

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
KINDS = {"worker": 12, "executor": 2, "driver": 1, "broker": 2}
"""What is killed, and how often beside the others."""

MANY = """
print("ready", flush=True)
for number in range(given["jobs"]):
    result = write(frame, f"run-{number}", bootstrap_servers=servers,
                   max_records_per_second=given["rate"], progress=False)
    print(json.dumps({"topic": f"run-{number}", "attempts": result.attempts,
                      "shards": len(result.shards)}), flush=True)
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
        with suppress(ProcessLookupError):
            os.killpg(self.pid, signal.SIGKILL)
        self._process.wait()
        for reader in self._readers:
            reader.join()
        for pipe in (self._process.stdout, self._process.stderr):
            assert pipe is not None
            pipe.close()


class Kills:
    """Seeded kills, and the account of what came of them."""

    def __init__(self, seed: int) -> None:
        self._choose = random.Random(seed)
        self.counted: Counter[str] = Counter()
        self.jobs = self.duplicates = self.attempts_more = 0

    def harass(self, driver: Driver, broker: BrokerProcess, most: int) -> None:
        """Kill parts of job after job until the driver has ended, or ``most`` are counted.

        A driver is killed only after a job of its own, so that every run has one to judge.
        """
        harassed, killed = 0, 0  # which job, and how often
        while driver.runs and sum(self.counted.values()) < most:
            time.sleep(self._choose.uniform(0.05, 1.0))  # a kill at any moment of a job
            if driver.ended() > harassed:
                harassed, killed = driver.ended(), 0
            if killed == KILLS_A_JOB:
                continue
            (kind,) = self._choose.choices(list(KINDS), list(KINDS.values()))
            if kind == "driver" and harassed:
                self.counted[kind] += 1
                return
            if self._kill(kind, driver, broker):
                self.counted[kind] += 1
                killed += 1

    def _kill(self, kind: str, driver: Driver, broker: BrokerProcess) -> bool:
        if kind == "broker":
            broker.kill()
            broker.start()
            return True
        targets = spark_children(driver.pid)[kind] if kind != "driver" else []
        if targets:
            with suppress(ProcessLookupError):
                os.kill(self._choose.choice(targets), signal.SIGKILL)
                return True
        return False

    def judge(self, told: dict[str, Any], servers: str, rows: int) -> None:
        """A job that has ended: nothing is lost, and nothing twice but what was tried again."""
        found = values(servers, told["topic"])
        assert set(found) == set(every_row(rows)), told
        more = told["attempts"] - told["shards"]
        extra = sum(found.values()) - rows
        assert extra == 0 or more > 0, told
        self.jobs += 1
        self.duplicates += extra
        self.attempts_more += more


def test_kills_lose_nothing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """``KILLS`` seeded kills of workers, executors and drivers, and restarts of the broker."""
    kills, run = Kills(SEED), 0
    while sum(kills.counted.values()) < KILLS:
        run += 1
        topics = {f"run-{number}": 3 for number in range(JOBS)}
        given = {"settings": SETTINGS, "rows": 6_000, "rate": 4_000, "jobs": JOBS}
        given |= {"master": "local-cluster[2,1,1024]"}
        with BrokerProcess(tmp_path / f"log-{run}", topics) as broker:
            driver = Driver({**given, "servers": broker.bootstrap_servers})
            try:
                driver.await_ready()
                kills.harass(driver, broker, KILLS)
                driver.check()
            finally:
                driver.kill()
            for told in driver.said():
                kills.judge(told, broker.bootstrap_servers, 6_000)
    with capsys.disabled():
        print(
            f"\n{dict(kills.counted)} kills; {kills.jobs} jobs ended, {kills.attempts_more}"
            f" attempts more than shards, {kills.duplicates} rows twice, none lost"
        )
    assert kills.jobs
