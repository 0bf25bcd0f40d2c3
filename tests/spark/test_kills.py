"""Workers, executors, drivers and the broker are killed, and nothing is lost.

A driver that was killed is started again, with the job it was at, as a scheduler would do it.
``KPROD_CAMPAIGN=long``, as ``make campaign`` runs it; ``KPROD_SPARK_KILLS`` kills (200), chosen by
``KPROD_SPARK_SEED``.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from tests.spark.driver_process import OF_CAMPAIGNS, SETTINGS, every_row, job, values
from tests.spark.kills import KINDS, Driver, Kills
from tests.support.broker_process import BrokerProcess

pytestmark = OF_CAMPAIGNS

KILLS = int(os.environ.get("KPROD_SPARK_KILLS", "200"))
SEED = int(os.environ.get("KPROD_SPARK_SEED", "20"))
JOBS = 6
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


class Account(Kills):
    """Kills, and what came of them."""

    def __init__(self, seed: int, most: int) -> None:
        super().__init__(seed, most)
        self.jobs = self.duplicates = self.attempts_more = self.started_again = 0

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


def harassed_run(kills: Account, folder: Path) -> None:
    """A broker, and ``JOBS`` jobs on it, by as many drivers as it takes; then all are judged."""
    given = {"settings": SETTINGS, "rows": ROWS, "rate": 4_000, "jobs": JOBS}
    given |= {"master": "local-cluster[2,1,1024]"}
    ended: list[dict[str, Any]] = []
    started_again: set[int] = set()
    with BrokerProcess(folder, {f"run-{number}": 3 for number in range(JOBS)}) as broker:
        while len(ended) < JOBS:
            more = {"first": len(ended), "servers": broker.bootstrap_servers}
            driver = Driver(job(MANY, given | more))
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
    kills, runs = Account(SEED, KILLS), 0
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
