"""Workers, executors, drivers and brokers are killed, and every row is there once.

Batches under a ``job_id`` and streams from a checkpoint, in turns. A driver that was killed is
started again with another number of shards; where that is refused, with the one that the batch was
begun with. ``KPROD_CAMPAIGN=long``, as ``make campaign`` runs it; ``KPROD_SPARK_KILLS_ONCE`` kills
(500) in all for each mode of delivery, chosen by ``KPROD_SPARK_SEED``.
"""

from __future__ import annotations

import os
from collections import Counter
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, Protocol

import pytest

from kprod.broker.open_transactions import open_transactions
from tests.spark.driver_process import OF_CAMPAIGNS, SETTINGS, every_row
from tests.spark.kills import KINDS, Driver, KillableBroker, Kills
from tests.support.apache_kafka.broker import ApacheKafka
from tests.support.apache_kafka.jars import NEWEST, OLDER
from tests.support.broker_process import BrokerProcess
from tests.support.committed_records import committed
from tests.support.topic_admin import TopicAdmin

pytestmark = OF_CAMPAIGNS

BROKERS = ("embedded", NEWEST, OLDER)
KILLS = int(os.environ.get("KPROD_SPARK_KILLS_ONCE", "500"))
SEED = int(os.environ.get("KPROD_SPARK_SEED", "20"))
JOBS = 6
PARTITIONS = 3
ROWS = 6_000
ENDS = ["Python worker exited unexpectedly", "Failed to find the data source"]
"""What a job ends with when the driver's own Python worker was killed: another driver goes on, as
Spark does not look again for a data source that it has not found."""
ENDS_ATOMIC = [*ENDS, "BatchNotCommitted", "BatchIncomplete"]
"""What a driver says besides of an atomic batch that the next run writes, or completes."""
OFTEN = {**KINDS, "driver": 3}
SPECULATES = {
    **SETTINGS,
    "spark.speculation": "true",
    "spark.speculation.interval": "100ms",
    "spark.speculation.multiplier": "1.1",
    "spark.speculation.quantile": "0.3",
    "spark.speculation.minTaskRuntime": "200ms",
}

MANY = r"""
import re
from kprod.spark import sharded

def stream(number, shards):
    lines = spark.readStream.option("maxFilesPerTrigger", 1).text(given["lines"])
    query = (
        sharded(lines, shards).writeStream.format("kprod")
        .option("kafka.bootstrap.servers", servers).option("topic", f"run-{number}")
        .option("delivery", given["delivery"])
        .option("checkpointLocation", f"{given['folder']}/checkpoint-{number}")
        .trigger(availableNow=True).start()
    )
    query.awaitTermination()

def batch(number, shards):
    write(frame, f"run-{number}", bootstrap_servers=servers, delivery=given["delivery"],
          job_id=f"job-{number}", shards=shards, max_records_per_second=given["rate"],
          progress=False)

print("ready", flush=True)
for number in range(given["first"], given["jobs"]):
    shards, refused = given["shards"], 0
    while True:
        try:
            (stream if number % 2 else batch)(number, shards)
        except Exception as error:
            found = re.search(r"begun with (\d+) shards", str(error))
            if found is None and not any(words in str(error) for words in given["ends"]):
                raise
            if found is None:
                print(json.dumps({"again": number}), flush=True)
                sys.exit()
            shards, refused = int(found[1]), refused + 1
        else:
            break
    print(json.dumps({"job": number, "refused": refused}), flush=True)
"""


class Broker(KillableBroker, AbstractContextManager[Any], Protocol):
    bootstrap_servers: str


def a_broker(kind: str, folder: Path) -> Broker:
    topics = {f"run-{number}": PARTITIONS for number in range(JOBS)}
    if kind == "embedded":
        return BrokerProcess(folder, topics)
    return ApacheKafka(folder, kind)


def lines(folder: Path) -> Path:
    """Four files, a micro-batch each."""
    found = folder / "lines"
    found.mkdir()
    for first in range(0, ROWS, ROWS // 4):
        rows = "".join(f"row {row}\n" for row in range(first, first + ROWS // 4))
        (found / f"{first:06}.txt").write_text(rows)
    return found


def harassed_run(kills: Kills, folder: Path, kind: str, delivery: str) -> Counter[str]:
    """A broker, and ``JOBS`` jobs on it, by as many drivers as it takes; then all are judged."""
    folder.mkdir()
    given = {"settings": SPECULATES, "rows": ROWS, "rate": 4_000, "jobs": JOBS}
    given |= {"master": "local-cluster[2,1,1024]", "folder": str(folder)}
    ends = ENDS_ATOMIC if delivery == "atomic" else ENDS
    given |= {"lines": str(lines(folder)), "ends": ends, "delivery": delivery}
    ended: list[dict[str, Any]] = []
    counted: Counter[str] = Counter()
    with a_broker(kind, folder / "log") as broker:
        if kind != "embedded":
            for number in range(JOBS):
                TopicAdmin(broker.bootstrap_servers).create(f"run-{number}", PARTITIONS)
        while len(ended) < JOBS:
            more = {"first": len(ended), "servers": broker.bootstrap_servers}
            more["shards"] = 2 + (counted["drivers"] + len(ended)) % 5
            driver = Driver(MANY, given | more)
            counted["drivers"] += 1
            try:
                driver.await_ready()
                was_killed = kills.harass(driver, broker)
                if not was_killed:
                    driver.await_end()
            finally:
                driver.kill()
            said = driver.said()
            again = [told for told in said if "again" in told]
            ended += [told for told in said if "job" in told]
            counted["ended by Spark"] += len(again)
            assert was_killed or again or len(ended) == JOBS
        for told in ended:
            judge(broker.bootstrap_servers, f"run-{told['job']}")
            counted["refused"] += told["refused"]
        assert open_transactions(broker.bootstrap_servers) == []
    counted["jobs"] = JOBS
    return counted


def judge(servers: str, topic: str) -> None:
    """Every row once, for a consumer that reads up to the end of each log: it is stable there."""
    found = Counter(committed(servers, topic, PARTITIONS))
    wrong = {row: times for row, times in found.items() if times != 1}
    lost = [row for row in every_row(ROWS) if row not in found]
    assert not wrong, (topic, len(wrong), list(wrong.items())[:5])
    assert not lost, (topic, len(lost), lost[:5])


@pytest.mark.parametrize("delivery", ["exactly_once", "atomic"])
@pytest.mark.parametrize("kind", BROKERS)
def test_kills_lose_and_double_nothing(
    kind: str, delivery: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    kills = Kills(SEED + BROKERS.index(kind), KILLS // len(BROKERS), OFTEN)
    counted: Counter[str] = Counter()
    runs = 0
    while not kills.enough:
        runs += 1
        counted += harassed_run(kills, tmp_path / f"run-{runs}", kind, delivery)
        with capsys.disabled():
            print(
                f"\n{kind}, {delivery}, run {runs}: {dict(kills.counted)}, {dict(counted)}",
                flush=True,
            )
