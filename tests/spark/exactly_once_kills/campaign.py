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
from tests.spark.exactly_once_kills.clusters import Cluster, a_cluster
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
AHEAD = ("driver", "shards", "delivery")
"""Kinds that kill drivers: the next one starts meanwhile, where it takes no executors from this."""
MASTERS = {
    "local": "local[2,8]",
    "local-cluster": "local-cluster[2,1,1024]",
    "connect": "local[2,8]",
}


@contextmanager
def campaign(
    kind: str, broker: str, folder: Path, planted: str | None = None
) -> Iterator[Campaign]:
    """A campaign on a session of this kind, and on brokers of this kind.

    ``planted`` names a wrong version of a protocol, and its delivery before it.
    """
    with ExitStack() as stack:
        for name in ("standalone", "jobs", "scratch"):
            (folder / name).mkdir(parents=True)
        master = MASTERS.get(kind)
        if master is None:
            master = stack.enter_context(standalone(folder / "standalone"))
        cluster = stack.enter_context(a_cluster(broker, folder / "brokers"))
        session = Session(kind, master, folder / "scratch", planted)
        stack.callback(session.close)
        yield Campaign(session, cluster, folder / "jobs")


class Campaign:
    """Cases on one session and one cluster. ``kills`` counts those that struck, by kind."""

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
        killer = Killer(case, self._session, self._cluster, lambda: self._look(job))
        try:
            wrote = self._run_to_end(job, case, killer)
            if killer.saw is not None:
                raise killer.saw
            judge(job, self._cluster.direct, wrote)
        except Violation as wrong:
            raise Violation(f"{wrong}; {case}") from wrong
        finally:
            self._cluster.watch.disarm()
        shutil.rmtree(folder)
        self.kills[case.kind] += killer.killed

    def _look(self, job: Job) -> None:
        if job.delivery == "atomic":
            check_decided(job, self._cluster.direct)

    def _run_to_end(self, job: Job, case: Case, killer: Killer) -> list[str] | None:
        """Start the job until it has ended; the writers that say so, or None for all."""
        ends: list[str] = []
        while True:
            driver = self._session.driver
            killer.arm()
            driver.tell(asdict(job))
            told = self._session.await_told(driver)
            self._cluster.watch.disarm()
            if told is not None and "wrote" in told:
                wrote: list[str] | None = told["wrote"]
                return wrote
            ends.append("driver gone" if told is None else told["failed"][-300:])
            self._look(job)
            if told is not None and case.kind == "cancel":
                check_cancelled(job, self._cluster.direct)
            without_worker = sum(NO_WORKER in end for end in ends)
            if len(ends) == MOST_STARTS or len(ends) - without_worker == MOST_RUNS:
                raise Violation(f"started {len(ends)} times, and never ended: {ends}")
            if told is not None and job.surface == "call":
                raise Violation(f"a call that cannot be started again has failed: {ends}")
            shards, delivery = job.shards, job.delivery
            if told is None and case.kind == "delivery":
                delivery = "atomic" if delivery == "exactly_once" else "exactly_once"
            if told is None:
                shards = case.shards if shards == case.other_shards else case.other_shards
            if told is not None and (found := BEGUN_WITH.search(told["failed"])):
                shards = int(found[1])
            # As its error says: on a busy machine the short time-out may never be enough.
            job = replace(job, shards=shards, delivery=delivery, transaction_timeout_ms=TIMEOUT_MS)
