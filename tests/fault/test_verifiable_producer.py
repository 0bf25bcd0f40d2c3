"""Apache Kafka is killed while ``kprod verifiable-producer`` runs; its own consumers judge.

``KPROD_CAMPAIGN=long`` sends a million records and kills the broker twenty times.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.apache_kafka.broker import ApacheKafka
from tests.support.apache_kafka.jars import NEWEST, jars
from tests.support.topic_admin import TopicAdmin

pytestmark = pytest.mark.full

LONG = os.environ.get("KPROD_CAMPAIGN") == "long"
KILLS, RECORDS = (20, 1_000_000) if LONG else (2, 20_000)
SECONDS = 1500 if LONG else 240
PARTITIONS = 3
TOPIC = "verified"
JAVA = ["java", "-Xmx256m", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC"]
TOOLS = "org.apache.kafka.tools"
Stored = dict[int, list[tuple[int, str | None, str]]]
"""Offset, key and value by partition, in the order in which they were told."""


@pytest.mark.timeout(2 * SECONDS)
def test_its_consumers_find_every_success_in_order(tmp_path: Path) -> None:
    tools = f"{jars(NEWEST, 'tools')}/*"
    with ApacheKafka(tmp_path / "kafka", NEWEST) as kafka:
        TopicAdmin(kafka.bootstrap_servers).create(TOPIC, PARTITIONS)
        told = produced_while_killed(kafka, tmp_path)
        own = ["--bootstrap-server", kafka.bootstrap_servers, "--topic", TOPIC]
        verifiable = ["--group-id", "v", "--verbose", "--reset-policy", "earliest"]
        tool = [*JAVA, "-cp", tools]
        counted = ["--max-messages", str(RECORDS)]
        lines = output_of([*tool, f"{TOOLS}.VerifiableConsumer", *own, *counted, *verifiable])
        assert by_partition(events(lines, "record_data")) == told
        shown = ["print.partition", "print.offset", "print.key"]
        formatted = [word for name in shown for word in ("--formatter-property", f"{name}=true")]
        console = [f"{TOOLS}.consumer.ConsoleConsumer", *own, *counted, "--from-beginning"]
        assert console_records(output_of([*tool, *console, *formatted])) == told
    print(f"{KILLS} kills, {sum(map(len, told.values())):,} records read by both consumers")


def produced_while_killed(kafka: ApacheKafka, folder: Path) -> Stored:
    """What the producer told of records, all of them stored; the broker died between."""
    options = folder / "producer.properties"
    options.write_text("delivery.timeout.ms=300000\nmax.block.ms=300000\nbatch.size=4096\n")
    command = [sys.executable, "-m", "kprod", "verifiable-producer", "--topic", TOPIC]
    command += ["--bootstrap-server", kafka.bootstrap_servers, "--max-messages", str(RECORDS)]
    # For five seconds at least: a few records would be stored before the broker could be killed.
    command += ["--command-config", str(options), "--throughput", str(RECORDS // 5)]
    command += ["--repeating-keys", "100"]
    began = time.monotonic()
    with (folder / "told").open("wb") as out:
        producer = subprocess.Popen(command, stdout=out)
        try:
            for kill in range(1, KILLS + 1):
                await_lines(folder / "told", kill * RECORDS // (KILLS + 2), producer)
                kafka.kill()
                kafka.start()
            assert producer.wait(SECONDS) == 0
        finally:
            producer.kill()
            producer.wait()
    lines = (folder / "told").read_text().splitlines()
    told = by_partition(events(lines, "producer_send_success"))
    assert not list(events(lines, "producer_send_error"))
    assert sum(map(len, told.values())) == RECORDS
    print(f"produced in {time.monotonic() - began:.0f} s")
    return told


def await_lines(file: Path, wanted: int, producer: subprocess.Popen[bytes]) -> None:
    """Wait until the producer has told of so many records."""
    found = 0
    with file.open("rb") as told:
        while found < wanted:
            assert producer.poll() is None, "the producer ended before the broker was killed"
            read = told.read()
            found += read.count(b"\n")
            if not read:
                time.sleep(0.01)


def output_of(command: list[str]) -> list[str]:
    """The lines that a tool of Kafka's prints."""
    ran = subprocess.run(command, capture_output=True, text=True, timeout=SECONDS, check=False)
    assert ran.returncode == 0, ran.stderr[-2000:]
    return ran.stdout.splitlines()


def events(lines: list[str], name: str) -> Iterator[Any]:
    """The events of that name."""
    for line in lines:
        if f'"{name}"' in line:
            yield json.loads(line)


def by_partition(found: Iterator[Any]) -> Stored:
    """The events as both tools for tests write them."""
    records: Stored = defaultdict(list)
    for event in found:
        records[event["partition"]].append((event["offset"], event["key"], event["value"]))
    return dict(records)


def console_records(lines: list[str]) -> Stored:
    """Lines such as ``Partition:0	Offset:7	3	103``."""
    records: Stored = defaultdict(list)
    for partition, offset, key, value in (line.split("\t") for line in lines):
        records[int(partition.partition(":")[2])].append(
            (int(offset.partition(":")[2]), key, value)
        )
    return dict(records)
