"""Exactly once on every kind of session: batches, streams and ``foreach_batch`` that come again.

``KPROD_CAMPAIGN=long``, as ``make campaign`` runs it, which installs what Spark Connect needs.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from kprod.admin import open_transactions
from kprod.broker import EmbeddedBroker
from tests.spark.driver_process import OF_CAMPAIGNS, SETTINGS, finished, job, standalone
from tests.support.committed_records import committed

pytestmark = OF_CAMPAIGNS

ROWS = 400
TOPICS = ("batches", "streams", "functions")
PARTITIONS = 3

PROGRAM = """
from kprod.spark import foreach_batch, sharded

once = {"bootstrap_servers": servers, "delivery": "exactly_once", "shards": 3}
folder = Path(given["folder"])
lines = folder / "lines"
checkpoints = [folder / name for name in ("stream", "function")]

def stream():
    query = (
        sharded(spark.readStream.text(str(lines)), 3).writeStream.format("kprod")
        .option("kafka.bootstrap.servers", servers).option("topic", "streams")
        .option("delivery", "exactly_once").option("checkpointLocation", str(checkpoints[0]))
        .trigger(availableNow=True).start()
    )
    query.awaitTermination()

def function():
    writes = foreach_batch("functions", job_id="functions", **once)
    query = (
        spark.readStream.text(str(lines)).writeStream.foreachBatch(writes)
        .option("checkpointLocation", str(checkpoints[1])).trigger(availableNow=True).start()
    )
    query.awaitTermination()

for number in range(2):
    told[number] = str(write(frame, "batches", job_id="batches", progress=False, **once))
    stream()
    function()
    for checkpoint in checkpoints:  # as if the driver had died before it noted the end
        for commit in (checkpoint / "commits").glob("*0*"):
            commit.unlink()
print(json.dumps(told))
"""


def run(servers: str, folder: Path, master: str, *, connect: bool = False) -> None:
    (folder / "lines").mkdir()
    (folder / "lines" / "1.txt").write_text("".join(f"row {n}\n" for n in range(ROWS)))
    given = {"master": master, "connect": connect, "settings": SETTINGS, "servers": servers}
    told = finished(job(PROGRAM, {**given, "rows": ROWS, "folder": str(folder)}))
    assert "3 committed, 0 already there" in told["0"]
    assert "0 committed, 3 already there" in told["1"]
    for topic in TOPICS:
        found = sorted(committed(servers, topic, PARTITIONS))
        assert found == sorted(b"row %d" % row for row in range(ROWS)), json.dumps(told)
    assert open_transactions(servers) == []


@pytest.mark.parametrize("kind", ["local[2]", "local-cluster[2,1,1024]", "standalone", "connect"])
def test_what_comes_again_is_there_once(kind: str, tmp_path: Path) -> None:
    with EmbeddedBroker(topics=dict.fromkeys(TOPICS, PARTITIONS)) as broker:
        if kind == "standalone":
            with standalone(tmp_path) as master:
                run(broker.bootstrap_servers, tmp_path, master)
        elif kind == "connect":
            pytest.importorskip("grpc", reason="Spark Connect needs grpcio: make campaign has it")
            run(broker.bootstrap_servers, tmp_path, "local[2]", connect=True)
        else:
            run(broker.bootstrap_servers, tmp_path, kind)
