"""A client that has only ``pyspark-client``: no JVM, no py4j, and pandas 3.

The Connect server is the installed pyspark, which may have another version.
"""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pyspark
import pytest

from kprod.admin import open_transactions
from kprod.broker import EmbeddedBroker
from tests.spark.driver_process import SETTINGS
from tests.spark.own_environment import connect_python, environment, python_with
from tests.support.committed_records import committed
from tests.support.ports import free_port

pytestmark = [pytest.mark.full, pytest.mark.timeout(7_200)]

ROWS = 200
TOPICS = ("batches", "sources", "once", "streams", "functions")
QUERIES = {"first": "a\nb\nc\nd\n", "other": "e\nf\ng\nh\n", "same": "a\nb\nc\nd\n"}
"""Inputs of queries with one ``job_id``, each with a new checkpoint. "other" has as many rows of
the same size in each shard."""
REQUIREMENTS = ("crc32c", "lz4", "zstandard")

PROGRAM = """
import importlib.util, json, sys
from pathlib import Path
import pandas
from pyspark.sql import SparkSession
from kprod.spark import foreach_batch, sharded, write

given = json.loads(sys.argv[1])
servers, folder = given["servers"], Path(given["folder"])
spark = SparkSession.builder.remote(given["remote"]).getOrCreate()
frame = spark.range(0, given["rows"], 1, 4).selectExpr("concat('row ', id) as value")
once = {"bootstrap_servers": servers, "delivery": "exactly_once", "shards": 3}
source = {"kafka.bootstrap.servers": servers}

def stream(writer, checkpoint):
    query = writer.option("checkpointLocation", str(folder / checkpoint)).trigger(availableNow=True)
    query.start().awaitTermination()

lines = spark.readStream.text(str(folder / "lines"))
results = [str(write(frame, "batches", bootstrap_servers=servers, progress=False))]
frame.write.format("kprod").options(**source, topic="sources").mode("append").save()
for _ in range(2):
    results.append(str(write(frame, "once", job_id="once", progress=False, **once)))
stream(sharded(lines, 3).writeStream.format("kprod")
       .options(**source, topic="streams", delivery="exactly_once"), "stream")
stream(lines.writeStream.foreachBatch(foreach_batch("functions", job_id="functions", **once)),
       "function")
nightly = foreach_batch("nightly", job_id="nightly", **{**once, "shards": 2})
ends = {}
for name, text in given["queries"].items():
    (folder / name).mkdir()
    (folder / name / "1.txt").write_text(text)
    try:
        lines = spark.readStream.text(str(folder / name))
        stream(lines.writeStream.foreachBatch(nightly), f"checkpoint of {name}")
        ends[name] = "ended"
    except Exception as error:
        ends[name] = str(error)
has_py4j = importlib.util.find_spec("py4j") is not None
print(json.dumps(
    {"results": results, "ends": ends, "pandas": pandas.__version__, "has_py4j": has_py4j}
))
"""


@contextmanager
def connect_server(python: Path, folder: Path) -> Iterator[str]:
    port = free_port()
    settings = {
        **SETTINGS,
        "spark.connect.grpc.binding.address": "127.0.0.1",
        "spark.connect.grpc.binding.port": str(port),
        "spark.local.dir": str(folder),
        "spark.sql.warehouse.dir": str(folder / "warehouse"),
    }
    submit = Path(pyspark.__file__).parent / "bin" / "spark-submit"
    server = "org.apache.spark.sql.connect.service.SparkConnectServer"
    command = [str(submit), "--master", "local[2,4]", "--class", server]
    for name, value in settings.items():
        command += ["--conf", f"{name}={value}"]
    with (folder / "server.log").open("w") as log:
        running = subprocess.Popen(
            command, cwd=folder, env=environment(python), stdout=log, stderr=log
        )
    try:
        yield f"sc://127.0.0.1:{port}"
    finally:
        running.terminate()
        running.wait()


def test_pyspark_client_can_use_every_writer(tmp_path: Path) -> None:
    client = python_with("spark-client", "pyspark-client>=4.0", "pyarrow>=18.0", *REQUIREMENTS)
    (tmp_path / "lines").mkdir()
    (tmp_path / "lines" / "1.txt").write_text("".join(f"row {row}\n" for row in range(ROWS)))
    with EmbeddedBroker(topics=dict.fromkeys((*TOPICS, "nightly"), 2)) as broker:
        servers = broker.bootstrap_servers
        with connect_server(connect_python(), tmp_path) as remote:
            given = {"servers": servers, "remote": remote, "rows": ROWS, "folder": str(tmp_path)}
            given["queries"] = QUERIES
            ran = subprocess.run(
                [client, "-c", PROGRAM, json.dumps(given)],
                env=environment(client),
                capture_output=True,
                text=True,
                timeout=3_600,
                check=False,
            )
        assert ran.returncode == 0, ran.stderr[-4_000:]
        results = json.loads(ran.stdout.splitlines()[-1])
        assert not results["has_py4j"]
        assert int(results["pandas"].split(".")[0]) >= 3
        assert "3 committed, 0 already there" in results["results"][1]
        assert "0 committed, 3 already there" in results["results"][2]
        for topic in TOPICS:
            found = sorted(committed(servers, topic, 2))
            assert found == sorted(b"row %d" % row for row in range(ROWS)), topic
        assert "RowsChanged" in results["ends"].pop("other")
        assert results["ends"] == {"first": "ended", "same": "ended"}
        assert sorted(committed(servers, "nightly", 2)) == [b"a", b"b", b"c", b"d"]
        assert open_transactions(servers) == []
