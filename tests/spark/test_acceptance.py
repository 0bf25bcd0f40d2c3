"""What the Spark side promises at full size: kinds of clusters, poison, memory, secrets.

Minutes long and heavy: ``KPROD_CAMPAIGN=long``, as ``make campaign`` runs it.
"""

from __future__ import annotations

import os
import re
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from kprod.admin import read_topic
from kprod.broker import EmbeddedBroker
from kprod.broker.log.log_config import LogConfig
from tests.spark.driver_process import (
    OF_CAMPAIGNS,
    ROOT,
    SETTINGS,
    every_row,
    finished,
    job,
    program,
    standalone,
    values,
)

pytestmark = OF_CAMPAIGNS

ROWS = 40_000
CANARY = "canary-7f3a9c51"

EVERYTHING = """
result = write(frame, "written", bootstrap_servers=servers)
told["offsets"] = {t: {str(p): [f.first, f.last, f.records] for p, f in ps.items()}
                   for t, ps in result.offsets.items()}
(frame.write.format("kprod").option("kafka.bootstrap.servers", servers)
      .option("topic", "saved").mode("append").save())
folder = Path(given["folder"])
(folder / "in").mkdir()
for restart in range(2):
    lines = "".join(f"row {n}\\n" for n in range(restart * 500, restart * 500 + 500))
    (folder / f"{restart}.txt").write_text(lines)
    os.rename(folder / f"{restart}.txt", folder / "in" / f"{restart}.txt")
    query = (spark.readStream.text(str(folder / "in")).writeStream.format("kprod")
             .option("kafka.bootstrap.servers", servers).option("topic", "streamed")
             .option("checkpointLocation", str(folder / "checkpoint"))
             .trigger(availableNow=True).start())
    query.awaitTermination()
if not given.get("connect"):
    writer = partition_writer("mapped", bootstrap_servers=servers)
    reports = frame.rdd.mapPartitions(writer).collect()
    told["mapped"] = sum(report["records"] for report in reports)
print()
print(json.dumps(told))
"""


@pytest.mark.parametrize("kind", ["local", "local-cluster", "standalone", "connect"])
def test_every_kind_of_cluster_delivers_everything(kind: str, tmp_path: Path) -> None:
    masters = {
        "local": "local[2]",
        "local-cluster": "local-cluster[2,1,1024]",
        "connect": "local[2]",
    }
    with EmbeddedBroker(default_partitions=3) as broker:
        servers = broker.bootstrap_servers
        given: dict[str, Any] = {
            "settings": SETTINGS,
            "servers": servers,
            "rows": ROWS,
            "folder": str(tmp_path),
            "connect": kind == "connect",
        }
        if kind == "standalone":
            with standalone(tmp_path) as address:
                told = finished(job(EVERYTHING, {**given, "master": address}))
        else:
            told = finished(job(EVERYTHING, {**given, "master": masters.get(kind, "local[2]")}))
        topics = ["written", "saved"] if kind == "connect" else ["written", "saved", "mapped"]
        for topic in topics:
            assert values(servers, topic) == every_row(ROWS), topic
        assert values(servers, "streamed") == every_row(1_000)
        ends = Counter(str(partition) for partition, _ in read_topic(servers, "written"))
        expected = {partition: [0, end - 1, end] for partition, end in ends.items()}
        assert told["offsets"]["written"] == expected


RECIPE = re.compile(r'^```python title="connect.py"\n(.*?)^```$', re.MULTILINE | re.DOTALL)


def test_the_recipe_for_spark_connect_runs() -> None:
    """It needs more packages than other recipes, which run with the other examples of the pages."""
    (code,) = RECIPE.findall((ROOT / "docs" / "spark-operation.md").read_text())
    assert finished(program(code + "print('{\"ended\": true}')")) == {"ended": True}


POISON = """
from kprod.spark import write
frame = spark.range(0, rows, 1, 8).selectExpr(
    "concat('row ', id) value", "if(id % 100 = 0, null, 'good') topic")
result = write(frame, bootstrap_servers=servers, on_row_error="dead_letter",
               dead_letter_topic="dead")
large = spark.range(0, 400, 1, 4).selectExpr("repeat('x', 1000000) value")
spark.conf.set("spark.sql.execution.arrow.maxRecordsPerBatch", "16")

def peak(batches):
    import resource, pyarrow as pa
    from kprod.spark import partition_writer
    first = next(batches)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    rest = (batch for part in ([first], batches) for batch in part)
    list(partition_writer("large", bootstrap_servers=servers, max_request_size=2_000_000)(rest))
    grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
    yield pa.RecordBatch.from_pydict({"kib": [grown], "batch": [first.nbytes]})

told["memory"] = [list(row) for row in large.mapInArrow(peak, "kib bigint, batch bigint").collect()]
told["dead"] = result.dead_letters
print()
print(json.dumps(told))
"""


def test_poison_and_large_values(tmp_path: Path) -> None:
    rows = 200_000
    with EmbeddedBroker(
        default_partitions=3, log_config=LogConfig(max_message_bytes=4_000_000)
    ) as broker:
        servers = broker.bootstrap_servers
        given = {"master": "local[2]", "settings": SETTINGS, "servers": servers, "rows": rows}
        told = finished(job(POISON, given))
        poison = {b"row %d" % row for row in range(0, rows, 100)}
        assert values(servers, "good") == every_row(rows) - Counter(poison)
        assert values(servers, "dead") == Counter(poison)
        assert told["dead"] == len(poison)
        for kib, batch in told["memory"]:
            assert kib * 1024 <= (32 << 20) + 2 * batch + (64 << 20)


SECRET = """
from kprod.errors import KprodError
options = dict(security_protocol="SASL_PLAINTEXT", sasl_mechanism="PLAIN", sasl_plain_username="u",
               sasl_plain_password="${env:KPROD_CANARY}", max_block_ms=2000)
import io, contextlib
from pyspark import cloudpickle
writer = partition_writer("t", bootstrap_servers=servers, **options)
assert given["canary"][::-1].encode() not in cloudpickle.dumps(writer)
shown = io.StringIO()
with contextlib.redirect_stdout(shown):
    frame.mapInArrow(writer, writer.schema).explain(True)
print(shown.getvalue())
for run in (
    lambda: write(frame, "t", bootstrap_servers=servers, **options),
    lambda: frame.mapInArrow(writer, writer.schema).collect(),
    lambda: (frame.write.format("kprod").options(**{
        "topic": "t", "kafka.bootstrap.servers": servers,
        **{f"kafka.{name.replace('_', '.')}": str(value) for name, value in options.items()
           if not name.startswith("sasl_plain")},
        "kafka.sasl_plain_username": "u", "kafka.sasl_plain_password": "${env:KPROD_CANARY}",
    }).mode("append").save()),
):
    try:
        run()
        print("no error")
    except Exception as error:
        print(type(error).__name__, error)
spark.stop()
print(json.dumps(told))
"""


def test_no_secret_is_seen_anywhere(tmp_path: Path) -> None:
    """Its only traces may be in the environment of the workers."""
    events = tmp_path / "events"
    events.mkdir()
    settings = {
        **SETTINGS,
        "spark.eventLog.enabled": "true",
        "spark.eventLog.dir": events.as_uri(),
        "spark.eventLog.compress": "false",
        "spark.log.level": "INFO",
    }
    with EmbeddedBroker() as broker:  # which wants no login, and so refuses ours
        given = {
            "master": "local[2]",
            "settings": settings,
            "servers": broker.bootstrap_servers,
            "rows": 100,
            "canary": CANARY,
        }
        os.environ["KPROD_CANARY"] = CANARY
        try:
            driver = job(SECRET, given | {"canary": CANARY[::-1]})
        finally:
            del os.environ["KPROD_CANARY"]
        out, err = driver.communicate(timeout=600)
    assert driver.returncode == 0, err[-4_000:]
    logged = [path.read_bytes() for path in events.rglob("*") if path.is_file()]
    assert any(b"SparkListenerJobStart" in text for text in logged)
    for text in (out.encode(), err.encode(), *logged):
        assert CANARY.encode() not in text
    assert "no error" not in out
