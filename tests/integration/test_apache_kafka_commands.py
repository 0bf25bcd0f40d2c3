"""``kprod topics`` and ``kprod verifiable-producer`` on Apache Kafka, judged by its own tools."""

from __future__ import annotations

import json
import subprocess
from collections import defaultdict
from typing import Any

import pytest
from typer.testing import CliRunner

from kprod.cli.app import app
from tests.integration.conftest import SharedKafka
from tests.support.apache_kafka.broker import ApacheKafka
from tests.support.apache_kafka.jars import NEWEST, jars

pytestmark = pytest.mark.full

JAVA = ["java", "-Xmx256m", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC"]
CONSUMER = "org.apache.kafka.tools.VerifiableConsumer"
RECORDS = 20_000


@pytest.fixture(scope="module")
def kafka(shared_kafka: SharedKafka) -> ApacheKafka:
    return shared_kafka(NEWEST)


def kprod(*arguments: str) -> str:
    ran = CliRunner().invoke(app, arguments)
    assert ran.exit_code == 0, ran.output
    return ran.stdout


def test_topics(kafka: ApacheKafka) -> None:
    servers = "--bootstrap-servers", kafka.bootstrap_servers
    options = "--topic-option", "cleanup.policy=compact"
    made = kprod("topics", "create", "commands-a", "--partitions", "3", *options, *servers)
    assert made == "created commands-a: 3 partitions, 1 replica\n"
    assert "commands-a" in kprod("topics", "list", *servers)
    lines = kprod("topics", "describe", "commands-a", *servers).splitlines()
    assert lines[1:] == [
        "  cleanup.policy=compact",
        *(f"  partition {p}: leader 1, replicas 1, in sync 1" for p in range(3)),
    ]
    again = CliRunner().invoke(app, ["topics", "create", "commands-a", *servers])
    assert (again.exit_code, "already exists" in again.stderr) == (1, True)
    assert kprod("topics", "delete", "commands-a", "--yes", *servers) == "deleted commands-a\n"
    assert "commands-a" not in kprod("topics", "list", *servers)


def test_its_verifiable_consumer_reads_what_was_told(kafka: ApacheKafka) -> None:
    servers = kafka.bootstrap_servers
    kprod("topics", "create", "commands-v", "--partitions", "2", "--bootstrap-servers", servers)
    own = ["--topic", "commands-v", "--bootstrap-server", servers, "--max-messages", str(RECORDS)]
    told = kprod("verifiable-producer", *own, "--repeating-keys", "7", "--value-prefix", "3")
    produced = by_partition(told.splitlines(), "producer_send_success")
    group = ["--group-id", "commands-v", "--verbose", "--reset-policy", "earliest"]
    command = [*JAVA, "-cp", f"{jars(NEWEST, 'tools')}/*", CONSUMER, *own, *group]
    ran = subprocess.run(command, capture_output=True, text=True, timeout=300, check=True)
    assert by_partition(ran.stdout.splitlines(), "record_data") == produced
    assert sum(map(len, produced.values())) == RECORDS


def by_partition(lines: list[str], name: str) -> dict[int, list[tuple[Any, ...]]]:
    """Offset, key and value of the events of that name, in the order of their lines."""
    found = defaultdict(list)
    for event in (json.loads(line) for line in lines if line.startswith("{")):
        if event["name"] == name:
            found[event["partition"]].append((event["offset"], event["key"], event["value"]))
    return dict(found)
