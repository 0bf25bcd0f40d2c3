"""One kill after the other, and what came of the jobs."""

from __future__ import annotations

import json
import re
import shutil
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from tests.spark.driver_process import standalone
from tests.spark.exactly_once_kills.clusters import Cluster, a_cluster
from tests.spark.exactly_once_kills.jobs import Job, prepare
from tests.spark.exactly_once_kills.judge import Violation, check_decided, judge
from tests.spark.exactly_once_kills.kinds import SHORT_TIMEOUT_MS, Case, Killer, takes_part
from tests.spark.exactly_once_kills.sessions import Session

TIMEOUT_MS = 60_000
MOST_RUNS = 8
BEGUN_WITH = re.compile(r"begun with (\d+) shards")
ALLOWED = (
    "Python worker exited unexpectedly",
    "BatchNotCommitted",
    "BatchIncomplete",
    "TransactionTooSlow",
    "another driver has taken over",
    "begun with",
)
"""After these a job may have to be started again; anything else that ends one is told."""


MASTERS = {
    "local": "local[2,8]",
    "local-cluster": "local-cluster[2,1,1024]",
    "connect": "local[2,8]",
}


@contextmanager
def campaign(kind: str, broker: str, folder: Path, log: Path | None = None) -> Iterator[Campaign]:
    """A campaign on a session of this kind, and on brokers of this kind."""
    with ExitStack() as stack:
        for name in ("standalone", "jobs", "scratch"):
            (folder / name).mkdir(parents=True)
        master = MASTERS.get(kind)
        if master is None:
            master = stack.enter_context(standalone(folder / "standalone"))
        cluster = stack.enter_context(a_cluster(broker, folder / "brokers"))
        session = Session(kind, master, folder / "scratch")
        stack.callback(session.kill)
        about = {"session": kind, "broker": broker}
        yield Campaign(session, cluster, folder / "jobs", about, log)


class Campaign:
    """Cases on one session and one cluster; ``log`` gets a line for each kill."""

    def __init__(
        self,
        session: Session,
        cluster: Cluster,
        folder: Path,
        about: Mapping[str, str],
        log: Path | None,
    ) -> None:
        self._session = session
        self._cluster = cluster
        self._folder = folder
        self._about = about
        self._log = log
        self._cases = 0
        self.kills: Counter[str] = Counter()
        self.ended_early: Counter[str] = Counter()

    def play(self, case: Case, planted: str | None = None) -> bool:
        """One job with one kill; whether it met its moment. Raises Violation.

        ``planted`` names the wrong version of the protocol that writes it.
        """
        self._cases += 1
        topic = f"run-{case.delivery.replace('_', '-')}-{self._cases}-{case.seed}"
        folder = self._folder / topic
        job = Job(
            topic=topic,
            servers=self._cluster.bootstrap_servers,
            surface=case.surface if planted is None else "planted",
            planted=planted,
            delivery=case.delivery,
            shards=case.shards,
            folder=str(folder),
            transaction_timeout_ms=SHORT_TIMEOUT_MS if case.kind == "freeze" else TIMEOUT_MS,
        )
        prepare(job)
        self._cluster.create(topic)
        started = time.monotonic()
        told: dict[str, Any] = {"case": asdict(case), **self._about}
        killer = Killer(case, self._session, self._cluster)
        try:
            told["ends"] = self._run_to_end(job, case, killer)
            told["lingered"] = judge(job, self._cluster.direct)
            told["verdict"] = "right"
        except Violation as wrong:
            told["verdict"] = f"WRONG: {wrong}"
            raise Violation(f"{wrong}; {case}") from wrong
        finally:
            self._cluster.watch.disarm()
            told |= {"killed": killer.killed, "seconds": round(time.monotonic() - started, 2)}
            self._note(told)
        shutil.rmtree(folder)
        self.kills[case.kind] += killer.killed
        return killer.killed

    def _run_to_end(self, job: Job, case: Case, killer: Killer) -> list[str]:
        """Start the job until it has ended; how each run of it did."""
        ends: list[str] = []
        driver = self._session.driver
        self._cluster.watch.arm(case.moment, killer, takes_part(case.kind))
        while True:
            driver.tell(job.told())
            told = self._session.await_told()
            self._cluster.watch.disarm()
            if told is not None and "ended" in told:
                return [*ends, json.dumps(told["ended"])]
            ends.append("driver gone" if told is None else _reason(told["failed"]))
            self.ended_early[ends[-1]] += 1
            if job.delivery == "atomic":
                check_decided(job, self._cluster.direct)
            if len(ends) == MOST_RUNS:
                raise Violation(f"started {MOST_RUNS} times, and never ended: {ends}")
            if told is not None and job.surface == "call":
                raise Violation(f"a call that cannot be started again has failed: {ends}")
            shards = case.other_shards if told is None else job.shards
            if told is not None and (found := BEGUN_WITH.search(told["failed"])):
                shards = int(found[1])
            # As its error says: on a busy machine the short time-out may never be enough.
            job = replace(job, shards=shards, transaction_timeout_ms=TIMEOUT_MS)
            driver = self._session.driver

    def _note(self, told: dict[str, Any]) -> None:
        if self._log is not None:
            with self._log.open("a") as log:
                log.write(json.dumps(told, default=str) + "\n")


def _reason(text: str) -> str:
    for allowed in ALLOWED:
        if allowed in text:
            return allowed
    errors = re.findall(r"\b\w+(?:Error|Exception|Failed|Lost)\b[^\n]{0,160}", text)
    return "; ".join(errors[-2:]) or text[:300]
