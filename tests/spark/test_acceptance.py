"""Memory, secrets, and the recipe for Spark Connect.

Takes minutes: ``KPROD_CAMPAIGN=long``, as ``make campaign`` runs it.
"""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from kprod.broker import EmbeddedBroker
from kprod.broker.log.log_config import LogConfig
from tests.spark.driver_process import OF_CAMPAIGNS, ROOT, SETTINGS, finished, program

pytestmark = OF_CAMPAIGNS

CANARY = "canary-7f3a9c51"

RECIPE = re.compile(r'^```python title="connect.py"\n(.*?)^```$', re.MULTILINE | re.DOTALL)


def test_the_documented_recipe_for_spark_connect_runs() -> None:
    (code,) = RECIPE.findall((ROOT / "docs" / "spark-operation.md").read_text())
    assert finished(program(code + "print('{\"ended\": true}')")) == {"ended": True}


SESSION = """
import json, sys
from pyspark.sql import SparkSession
from kprod.spark import partition_writer, write

servers, settings = sys.argv[1], json.loads(sys.argv[2])
builder = SparkSession.builder.master("local[2]")
for name, value in settings.items():
    builder = builder.config(name, value)
spark = builder.getOrCreate()
"""


LARGE = """
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

found = [list(row) for row in large.mapInArrow(peak, "kib bigint, batch bigint").collect()]
print()
print(json.dumps({"memory": found}))
"""


def test_memory_for_large_values_is_bounded_by_the_batch_size() -> None:
    with EmbeddedBroker(
        default_partitions=3, log_config=LogConfig(max_message_bytes=4_000_000)
    ) as broker:
        servers = broker.bootstrap_servers
        driver = program(SESSION + LARGE, servers, json.dumps(SETTINGS))
        for kib, batch in finished(driver)["memory"]:
            assert kib * 1024 <= (32 << 20) + 2 * batch + (64 << 20)


SECRET = """
from kprod.errors import KprodError
options = dict(security_protocol="SASL_PLAINTEXT", sasl_mechanism="PLAIN", sasl_plain_username="u",
               sasl_plain_password="${env:KPROD_CANARY}", max_block_ms=2000)
import io, contextlib
from pyspark import cloudpickle
frame = spark.range(0, 100, 1, 8).selectExpr("cast(id as string) key", "concat('row ', id) value")
writer = partition_writer("t", bootstrap_servers=servers, **options)
assert sys.argv[3][::-1].encode() not in cloudpickle.dumps(writer)
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
"""


def test_no_output_has_a_secret(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    events = tmp_path / "events"
    events.mkdir()
    settings = {
        **SETTINGS,
        "spark.eventLog.enabled": "true",
        "spark.eventLog.dir": events.as_uri(),
        "spark.eventLog.compress": "false",
        "spark.log.level": "INFO",
    }
    monkeypatch.setenv("KPROD_CANARY", CANARY)
    with EmbeddedBroker() as broker:  # which accepts no login
        servers = broker.bootstrap_servers
        driver = program(SESSION + SECRET, servers, json.dumps(settings), CANARY[::-1])
        out, err = driver.communicate(timeout=600)
    assert driver.returncode == 0, err[-4_000:]
    logged = [path.read_bytes() for path in events.rglob("*") if path.is_file()]
    assert any(b"SparkListenerJobStart" in text for text in logged)
    for text in (out.encode(), err.encode(), *logged):
        assert CANARY.encode() not in text
    assert "no error" not in out
