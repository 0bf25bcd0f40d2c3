"""Apache Kafka's clients, tools and broker check the embedded broker."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from confluent_kafka import Producer

from kprod import KafkaProducer
from kprod.broker import EmbeddedBroker
from kprod.broker.log.log_config import LogConfig
from kprod.broker.log.log_files import check_directory
from tests.support.apache_kafka.broker import ApacheKafka
from tests.support.apache_kafka.jars import NEWEST, OLDER, jars
from tests.support.confluent_consumer import confluent_consumer, read
from tests.support.legacy_messages import legacy_message, legacy_wrapper
from tests.support.topic_admin import TopicAdmin

# The first run may have to fetch the jars.
pytestmark = pytest.mark.full

JAVA = ["java", "-Xmx256m", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC"]
QUIET = "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn"
PROGRAMS = Path(__file__).parents[1] / "support" / "apache_kafka"
GROUP_READER = PROGRAMS / "GroupReader.java"
ROUND_TRIP = PROGRAMS / "RoundTrip.java"
DUMP = "kafka.tools.DumpLogSegments"
ERRORS = ["ismatch", "isvalid: false", "not found", "orrupt"]


def java(*arguments: str, version: str = NEWEST) -> str:
    command = [*JAVA, QUIET, "-cp", f"{jars(version)}/*", *arguments]
    ran = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    return ran.stdout


def fill(broker: EmbeddedBroker, first: int, end: int) -> None:
    with KafkaProducer(bootstrap_servers=broker.bootstrap_servers) as producer:
        for number in range(first, end):
            producer.send("t", b"%d" % number, key=b"%d" % (number % 5), partition=number % 3)


@pytest.mark.parametrize("version", [NEWEST, OLDER])
def test_the_java_consumer_continues_at_the_committed_offsets(version: str) -> None:
    with EmbeddedBroker(topics={"t": 3}) as broker:
        found: list[str] = []
        for start in (0, 90):
            fill(broker, start, start + 90)
            arguments = (broker.bootstrap_servers, "t", "g", "90")
            printed = java(str(GROUP_READER), *arguments, version=version).splitlines()
            found += [line for line in printed if line.isdigit()]
            assert "group Stable members 1" in printed
            committed = sorted(line for line in printed if line.startswith("committed"))
            assert committed == [f"committed t-{p} {(start + 90) // 3}" for p in range(3)]
        assert sorted(map(int, found)) == list(range(180))


def dump(path: Path, kind: str, *options: str) -> str:
    files = ",".join(sorted(map(str, path.glob(f"*.{kind}"))))
    printed = java(DUMP, *options, "--files", files, version=OLDER)
    assert not [word for word in ERRORS if word in printed], printed
    return printed


def test_dump_log_segments_reads_the_offsets_topic_and_a_compacted_log(tmp_path: Path) -> None:
    config = LogConfig(segment_bytes=15_000, min_cleanable_dirty_ratio=0.0)
    with EmbeddedBroker(tmp_path, log_config=config) as broker:
        broker.create_topic("t", 3, {"cleanup.policy": "compact"})
        fill(broker, 0, 9_000)
        consumer = confluent_consumer(broker.bootstrap_servers, "t")
        read(consumer, 1)
        consumer.commit(asynchronous=False)
        consumer.close()
        before = len(broker.records("t"))
        broker.maintain()
        assert len(broker.records("t")) < before
    offsets = dump(tmp_path / "__consumer_offsets-0", "log", "--offsets-decoder")
    assert '"group":"g"' in offsets
    assert '"protocol":"range"' in offsets
    compacted = tmp_path / "t-0"
    for kind in ("log", "index", "timeindex", "snapshot"):
        dump(compacted, kind, "--deep-iteration")
    assert not list(check_directory(compacted))


def test_dump_log_segments_reads_transaction_state_and_markers(tmp_path: Path) -> None:
    with EmbeddedBroker(tmp_path, topics={"t": 1}) as broker:
        settings = {"bootstrap.servers": broker.bootstrap_servers, "transactional.id": "my-id"}
        producer = Producer(settings)
        producer.init_transactions(20)
        for number in range(4):
            producer.begin_transaction()
            producer.produce("t", b"%d" % number, partition=0)
            producer.flush(20)
            producer.abort_transaction(20) if number % 2 else producer.commit_transaction(20)
    states = dump(tmp_path / "__transaction_state-0", "log", "--transaction-log-decoder")
    assert "transactionalId=my-id" in states
    for state in ("Empty", "Ongoing", "PrepareCommit", "CompleteAbort"):
        assert f"state={state}" in states
    assert "partitions=[t-0]" in states
    records = dump(tmp_path / "t-0", "log", "--deep-iteration")
    assert records.count("endTxnMarker: COMMIT") == records.count("endTxnMarker: ABORT") == 2
    assert dump(tmp_path / "t-0", "txnindex").count("producerId: ") == 2
    dump(tmp_path / "t-0", "snapshot")


@pytest.mark.parametrize("magic", [0, 1])
def test_dump_log_segments_and_java_consumer_read_old_formats(tmp_path: Path, magic: int) -> None:
    broker = EmbeddedBroker(tmp_path, topics={"t": 1})
    with broker:
        pass
    old = legacy_message(0, b"0", magic) + legacy_wrapper(1, [b"1", b"2"], magic)
    (tmp_path / "t-0" / f"{0:020d}.log").write_bytes(old)
    with broker:
        broker.records("t")
        printed = java(str(GROUP_READER), broker.bootstrap_servers, "t", "g", "3").splitlines()
        assert [line for line in printed if line.isdigit()] == ["0", "1", "2"]
    for kind in ("log", "index", "timeindex"):
        dump(tmp_path / "t-0", kind, "--deep-iteration")


def test_the_embedded_broker_opens_a_data_directory_of_apache_kafka(tmp_path: Path) -> None:
    """Apache Kafka was killed: all records are there, and more can be appended."""
    kafka = ApacheKafka(tmp_path, NEWEST)
    with kafka:
        TopicAdmin(kafka.bootstrap_servers).create("t", 3)
        with KafkaProducer(bootstrap_servers=kafka.bootstrap_servers) as producer:
            for number in range(3_000):
                producer.send("t", b"%d" % number, partition=number % 3)
    with EmbeddedBroker(kafka.data_dir) as broker:
        assert sorted(int(record.value or b"") for record in broker.records("t")) == list(
            range(3_000)
        )
        fill(broker, 3_000, 3_300)
        assert len(broker.records("t")) == 3_300


@pytest.mark.parametrize("version", [NEWEST, OLDER])
def test_the_java_clients_write_and_read_in_every_codec(version: str) -> None:
    with EmbeddedBroker(topics={"t": 3}) as broker:
        printed = java(str(ROUND_TRIP), broker.bootstrap_servers, "t", "500", version=version)
    assert printed.strip() == "consumed 2500"
