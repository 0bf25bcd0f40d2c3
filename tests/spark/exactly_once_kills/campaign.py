"""One job after the other, the kills in each, and what came of it."""

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
from tests.spark.exactly_once_kills.account import counts
from tests.spark.exactly_once_kills.clusters import Cluster, a_cluster
from tests.spark.exactly_once_kills.console_consumer import check_by_console_consumer
from tests.spark.exactly_once_kills.jobs import Job, prepare
from tests.spark.exactly_once_kills.judge import Violation, check_cancelled, check_decided, judge
from tests.spark.exactly_once_kills.kinds import SHORT_TIMEOUT_MS, Case, Killer
from tests.spark.exactly_once_kills.sessions import Session

TIMEOUT_MS = 60_000
MOST_RUNS = 12
MOST_STARTS = 40
"""Those that Spark has given up before its worker ran among them."""
NO_WORKER = "Timed out while waiting for the Python worker to connect back"
"""Spark gives the process of ``foreachBatch`` on Connect ten seconds: not enough at a high load."""
BEGUN_WITH = re.compile(r"started with (\d+) shards")
ALLOWED = (
    "KeyboardInterrupt",
    "Cancelled",
    NO_WORKER,
    "Python worker exited unexpectedly",
    "BatchNotCommitted",
    "BatchIncomplete",
    "TransactionTooSlow",
    "another driver has taken over",
    "started with",
)
"""After these a job may have to be started again; anything else that ends one is told."""


AHEAD = ("driver", "shards", "delivery")
"""Kinds that kill drivers: the next one starts meanwhile, where it takes no executors from this."""
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
        stack.callback(session.close)
        about = {"session": kind, "broker": broker}
        yield Campaign(session, cluster, folder / "jobs", about, log)


class Campaign:
    """Cases on one session and one cluster; ``log`` gets a line for each job.

    ``kills`` counts those that struck, by kind. ``jobs`` are those that were judged right, but for
    twins. ``counted`` has what ``account.HEADS`` names.
    """

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
        self.jobs: list[Job] = []
        self.ended_early: Counter[str] = Counter()
        self.counted: Counter[str] = Counter()
        self.cancelled = 0  # runs, by Ctrl-C or query.stop(); nothing was open after 30 s
        self.changed = 0  # starts with the other delivery

    def play(self, case: Case, planted: str | None = None) -> int:
        """One job with its kills; how many struck. Raises Violation.

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
            connect=self._about["session"] == "connect",
            transaction_timeout_ms=SHORT_TIMEOUT_MS if case.kind == "freeze" else TIMEOUT_MS,
        )
        self._session.keep_ahead(case.kind in AHEAD and self._about["session"] == "local")
        prepare(job)
        self._cluster.create(topic)
        started = time.monotonic()
        told: dict[str, Any] = {"case": asdict(case), **self._about}
        killer = Killer(case, self._session, self._cluster, lambda: self._look(job))
        try:
            told["ends"] = self._run_to_end(job, case, killer)
            if killer.saw is not None:
                raise killer.saw
            wrote = json.loads(told["ends"][-1]).get("wrote")
            told["lingered"] = judge(job, self._cluster.direct, wrote)
            told["verdict"] = "right"
        except Violation as wrong:
            told["verdict"] = f"WRONG: {wrong}"
            raise Violation(f"{wrong}; {case}") from wrong
        finally:
            self._cluster.watch.disarm()
            told |= {"killed": killer.killed, "seconds": round(time.monotonic() - started, 2)}
            self._note(told)
            if planted is None:
                self.counted += counts(told)
        shutil.rmtree(folder)
        self.kills[case.kind] += killer.killed
        if planted is None and wrote is None:
            self.jobs.append(job)
        return killer.killed

    def judge_again(self) -> None:
        """Raises Violation unless Apache Kafka's console consumer reads the same."""
        if self._about["broker"] != "embedded":
            check_by_console_consumer(self.jobs, self._cluster.direct)

    def _look(self, job: Job) -> None:
        if job.delivery == "atomic":
            check_decided(job, self._cluster.direct)

    def _run_to_end(self, job: Job, case: Case, killer: Killer) -> list[str]:
        """Start the job until it has ended; how each run of it did."""
        ends: list[str] = []
        while True:
            driver = self._session.driver
            killer.arm()
            driver.tell(job.told())
            told = self._session.await_told(driver)
            self._cluster.watch.disarm()
            if told is not None and "ended" in told:
                return [*ends, json.dumps(told["ended"])]
            ends.append("driver gone" if told is None else _reason(told["failed"]))
            self.ended_early[ends[-1]] += 1
            self._look(job)
            if told is not None and case.kind == "cancel":
                self.cancelled += 1
                check_cancelled(job, self._cluster.direct)
            if len(ends) == MOST_STARTS or len(ends) - ends.count(NO_WORKER) == MOST_RUNS:
                raise Violation(f"started {len(ends)} times, and never ended: {ends}")
            if told is not None and job.surface == "call":
                raise Violation(f"a call that cannot be started again has failed: {ends}")
            shards, delivery = job.shards, job.delivery
            if told is None and case.kind == "delivery":
                delivery = "atomic" if delivery == "exactly_once" else "exactly_once"
                self.changed += 1
            if told is None:
                shards = case.shards if shards == case.other_shards else case.other_shards
            if told is not None and (found := BEGUN_WITH.search(told["failed"])):
                shards = int(found[1])
            # As its error says: on a busy machine the short time-out may never be enough.
            job = replace(job, shards=shards, delivery=delivery, transaction_timeout_ms=TIMEOUT_MS)

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
