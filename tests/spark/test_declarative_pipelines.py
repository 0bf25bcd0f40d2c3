"""kprod as the sink of Declarative Pipelines, by ``spark-pipelines run`` (Spark 4.1 and newer)."""

from __future__ import annotations

import subprocess
from collections import Counter
from pathlib import Path

import pyspark
import pytest

from kprod.admin import open_transactions
from kprod.broker import EmbeddedBroker
from tests.spark.driver_process import SETTINGS, values
from tests.spark.own_environment import connect_python, environment

pytestmark = [
    pytest.mark.full,
    pytest.mark.timeout(7_200),
    pytest.mark.skipif(
        tuple(map(int, pyspark.__version__.split(".")[:2])) < (4, 1), reason="since Spark 4.1"
    ),
]

SPECIFICATION = """
name: sinks
storage: file://{folder}/storage
libraries:
  - glob:
      include: transformations/**
"""

FLOWS = """
from pyspark import pipelines as dp
from pyspark.sql import SparkSession
from kprod.spark import sharded

spark = SparkSession.active()
brokers = {{"kafka.bootstrap.servers": "{servers}"}}
dp.create_sink("at_least_once", "kprod", {{**brokers, "topic": "at_least_once"}})
dp.create_sink("once", "kprod", {{**brokers, "topic": "once", "delivery": "exactly_once"}})

@dp.append_flow(target="at_least_once")
def lines():
    return spark.readStream.format("text").load("file://{folder}/in")

@dp.append_flow(target="once")
def lines_once():
    return sharded(spark.readStream.format("text").load("file://{folder}/in"), 2, by="value")
"""


def run(folder: Path, *arguments: str) -> None:
    pipelines = Path(pyspark.__file__).parent / "bin" / "spark-pipelines"
    command: list[str | Path] = [pipelines, "run", *arguments]
    command += ["--spec", folder / "spark-pipeline.yml", "--remote", "local[2,4]"]
    for name, value in SETTINGS.items():
        command += ["--conf", f"{name}={value}"]
    ran = subprocess.run(
        command,
        cwd=folder,
        env=environment(connect_python()),
        capture_output=True,
        text=True,
        timeout=3_600,
        check=False,
    )
    assert ran.returncode == 0, ran.stdout[-4_000:] + ran.stderr[-4_000:]


def rows(name: str) -> list[str]:
    return [f"{name} {number}" for number in range(20)]


def add(folder: Path, name: str) -> None:
    (folder / "in" / f"{name}.txt").write_text("\n".join(rows(name)))


def test_sinks_are_written_and_a_full_refresh_writes_everything_again(tmp_path: Path) -> None:
    for name in ("in", "transformations"):
        (tmp_path / name).mkdir()
    (tmp_path / "spark-pipeline.yml").write_text(SPECIFICATION.format(folder=tmp_path))
    with EmbeddedBroker(topics={"at_least_once": 2, "once": 2}) as broker:
        servers = broker.bootstrap_servers
        flows = FLOWS.format(folder=tmp_path, servers=servers)
        (tmp_path / "transformations" / "flows.py").write_text(flows)
        add(tmp_path, "a")
        run(tmp_path)
        first = Counter(row.encode() for row in rows("a"))
        for topic in ("at_least_once", "once"):
            assert values(servers, topic) == first
        assert open_transactions(servers) == []
        add(tmp_path, "b")
        run(tmp_path, "--full-refresh-all")
        both = Counter(row.encode() for name in "ab" for row in rows(name))
        for topic in ("at_least_once", "once"):
            assert values(servers, topic) == first + both
        assert open_transactions(servers) == []
