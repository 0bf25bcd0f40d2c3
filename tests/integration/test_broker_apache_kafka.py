"""Apache Kafka's own Java clients and its own tool against the embedded broker and its files."""

from __future__ import annotations

import itertools
import subprocess
import time
from pathlib import Path

import pytest
from confluent_kafka import Producer

from kprod.broker import EmbeddedBroker
from kprod.broker.log.log_config import LogConfig
from tests.support.apache_kafka.jars import NEWEST, OLDER, jars

# The first run may have to fetch the jars.
pytestmark = pytest.mark.full

JAVA = ["java", "-Xmx256m", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC"]
QUIET = "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn"
ROUND_TRIP = Path(__file__).parents[1] / "support" / "apache_kafka" / "RoundTrip.java"
COMPLAINTS = ["ismatch", "isvalid: false", "not found", "orrupt"]
CODECS = ["none", "gzip", "snappy", "lz4", "zstd"]


def java(version: str, *arguments: str) -> str:
    command = [*JAVA, QUIET, "-cp", f"{jars(version)}/*", *arguments]
    ran = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    return ran.stdout


@pytest.mark.parametrize("version", [NEWEST, OLDER])
def test_the_java_clients_write_and_read_in_every_codec(version: str) -> None:
    with EmbeddedBroker(topics={"t": 3}) as broker:
        printed = java(version, str(ROUND_TRIP), broker.bootstrap_servers, "t", "500")
    assert printed.strip() == "consumed 2500"


def test_its_tool_finds_no_fault_in_the_files(tmp_path: Path) -> None:
    config = LogConfig(segment_bytes=15_000, index_interval_bytes=1_000)
    # Every record has its own time: equal ones make one entry of an index, and how many records
    # there are in a millisecond depends on the producer's speed.
    times = itertools.count(int(time.time() * 1000))
    with EmbeddedBroker(tmp_path, topics={"t": 1}, log_config=config) as broker:
        for codec in CODECS:
            settings = {
                "bootstrap.servers": broker.bootstrap_servers,
                "compression.type": codec,
                "enable.idempotence": True,
                "batch.num.messages": 30,
            }
            producer = Producer(settings)
            for number in range(500):
                value = b"%d" % number * 20
                producer.produce("t", value, b"key", headers=[("a", b"1")], timestamp=next(times))
            assert producer.flush(20) == 0

    assert len(list((tmp_path / "t-0").glob("*.log"))) > 2
    kinds = {"log": 2_500, "index": 10, "timeindex": 10, "snapshot": 5}
    for suffix, least in kinds.items():
        files = ",".join(sorted(map(str, (tmp_path / "t-0").glob(f"*.{suffix}"))))
        dump = "kafka.tools.DumpLogSegments"
        printed = java(OLDER, dump, "--deep-iteration", "--files", files)
        assert not [word for word in COMPLAINTS if word in printed], printed
        entries = [line for line in printed.splitlines() if "ffset" in line]
        assert len(entries) >= least, printed
