"""One job after the other, and the kills in each."""

from __future__ import annotations

import re
import shutil
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, replace
from pathlib import Path

from tests.spark.driver_process import standalone
from tests.spark.exactly_once_kills.checks import Violation, check, check_cancelled, check_decided
from tests.spark.exactly_once_kills.clusters import Cluster, a_cluster
from tests.spark.exactly_once_kills.jobs import Job, prepare
from tests.spark.exactly_once_kills.kinds import SHORT_TIMEOUT_MS, Case, Killer
from tests.spark.exactly_once_kills.sessions import Session

TIMEOUT_MS = 60_000
MOST_RUNS = 12
MOST_STARTS = 40
"""Including those that failed before Spark's worker ran."""
NO_WORKER = "Timed out while waiting for the Python worker to connect back"
"""Spark waits ten seconds for it, which is too short at a high load."""
BEGUN_WITH = re.compile(r"started with (\d+) shards")
AHEAD = ("driver", "shards", "delivery")
"""Kinds that kill drivers: the next driver is started in advance."""
MASTERS = {
    "local": "local[2,8]",
    "local-cluster": "local-cluster[2,1,1024]",
    "connect": "local[2,8]",
}


@contextmanager
def campaign(
    kind: str, broker: str, folder: Path, planted: str | None = None
) -> Iterator[Campaign]:
    """A campaign on these kinds of session and broker.

    ``planted`` is the delivery and the name of a bug.
    """
    with ExitStack() as stack:
        for name in ("standalone", "jobs", "scratch"):
            (folder / name).mkdir(parents=True)
        master = MASTERS.get(kind)
        if master is None:
            master = stack.enter_context(standalone(folder / "standalone"))
        cluster = a_cluster(broker, folder / "brokers")
        stack.enter_context(cluster)
        session = Session(kind, master, folder / "scratch", planted)
        stack.callback(session.close)
        yield Campaign(session, cluster, folder / "jobs")


class Campaign:
    """Cases on one session and one cluster. ``kills`` counts the kills by kind."""

    def __init__(self, session: Session, cluster: Cluster, folder: Path) -> None:
        self._session = session
        self._cluster = cluster
        self._folder = folder
        self._cases = 0
        self.kills: Counter[str] = Counter()

    def play(self, case: Case) -> None:
        """One job with its kills. Raises Violation."""
        self._cases += 1
        topic = f"run-{case.delivery.replace('_', '-')}-{self._cases}-{case.seed}"
        folder = self._folder / topic
        job = Job(
            topic=topic,
            servers=self._cluster.bootstrap_servers,
            surface=case.surface,
            delivery=case.delivery,
            shards=case.shards,
            folder=str(folder),
            connect=self._session.kind == "connect",
            transaction_timeout_ms=SHORT_TIMEOUT_MS if case.kind == "freeze" else TIMEOUT_MS,
        )
        self._session.keep_ahead(case.kind in AHEAD and self._session.kind == "local")
        prepare(job)
        self._cluster.create(topic)
        killer = Killer(case, self._session, self._cluster, lambda: self._check_visible(job))
        try:
            wrote = self._run_to_end(job, case, killer)
            if killer.violation is not None:
                raise killer.violation
            check(job, self._cluster.direct, wrote)
        except Violation as wrong:
            raise Violation(f"{wrong}; {case}") from wrong
        finally:
            self._cluster.watch.disarm()
        shutil.rmtree(folder)
        self.kills[case.kind] += killer.killed

    def _check_visible(self, job: Job) -> None:
        if job.delivery == "atomic":
            check_decided(job, self._cluster.direct)

    def _run_to_end(self, job: Job, case: Case, killer: Killer) -> list[str] | None:
        """Restart the job until it has succeeded. Returns the writers that succeeded; None: all."""
        ends: list[str] = []
        while True:
            driver = self._session.driver
            killer.arm()
            driver.send_job(asdict(job))
            outcome = self._session.await_outcome(driver)
            self._cluster.watch.disarm()
            if outcome is not None and "wrote" in outcome:
                wrote: list[str] | None = outcome["wrote"]
                return wrote
            ends.append("driver gone" if outcome is None else outcome["failed"][-300:])
            self._check_visible(job)
            if outcome is not None and case.kind == "cancel":
                check_cancelled(job, self._cluster.direct)
            without_worker = sum(NO_WORKER in end for end in ends)
            if len(ends) == MOST_STARTS or len(ends) - without_worker == MOST_RUNS:
                raise Violation(f"started {len(ends)} times, and never succeeded: {ends}")
            if outcome is not None and job.surface == "call":
                raise Violation(f"a call that cannot be restarted has failed: {ends}")
            shards, delivery = job.shards, job.delivery
            if outcome is None and case.kind == "delivery":
                delivery = "atomic" if delivery == "exactly_once" else "exactly_once"
            if outcome is None:
                shards = case.shards if shards == case.other_shards else case.other_shards
            if outcome is not None and (found := BEGUN_WITH.search(outcome["failed"])):
                shards = int(found[1])
            # On a busy machine the short timeout may never be enough.
            job = replace(job, shards=shards, delivery=delivery, transaction_timeout_ms=TIMEOUT_MS)
