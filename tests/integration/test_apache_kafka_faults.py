"""Apache Kafka killed, and connections to it cut: nothing lost, doubled or reordered.

``KPROD_CAMPAIGN=long`` runs twenty times the records, with more of both faults, for some minutes.
"""

from __future__ import annotations

import os
import threading
import time
from pathlib import Path
from typing import NamedTuple

import pytest

from kprod import KafkaProducer, RecordMetadata
from tests.support.apache_kafka.broker import ApacheKafka
from tests.support.apache_kafka.jars import NEWEST
from tests.support.cutting_proxy import CutPlan, CuttingProxy
from tests.support.judge import read_back
from tests.support.numbered_records import check_numbered, numbered
from tests.support.topic_admin import TopicAdmin

pytestmark = pytest.mark.full

TOPIC = "faults"
PARTITIONS = 6
VALUE_BYTES = 100
BATCH_BYTES = 2_048
BUFFER_BYTES = 1_000_000
BYTES_ANSWERED_PER_BYTE_SENT = 0.01


class Campaign(NamedTuple):
    """How much is sent, and how often something breaks meanwhile. ``seconds``: until given up."""

    records: int
    kills: int
    cuts: int
    seconds: int

    def cut_plan(self, seed: int) -> CutPlan:
        """Cuts that are used up when about two thirds of the records are sent."""
        share = 1.5 * self.records * VALUE_BYTES / self.cuts
        return CutPlan(seed, self.cuts, int(share), int(share * BYTES_ANSWERED_PER_BYTE_SENT))


# Each kill is a start of the broker, some seconds. What one shows, more show more often.
CAMPAIGNS = {"short": Campaign(50_000, 2, 30, 300), "long": Campaign(1_000_000, 20, 1_000, 3_000)}
CAMPAIGN = CAMPAIGNS[os.environ.get("KPROD_CAMPAIGN", "short")]


@pytest.mark.timeout(CAMPAIGN.seconds + 360)
def test_kills_and_cuts_cost_no_record_and_no_order(tmp_path: Path) -> None:
    with (
        CuttingProxy(CAMPAIGN.cut_plan(seed=7)) as proxy,
        ApacheKafka(tmp_path, NEWEST, told_port=proxy.port) as broker,
    ):
        proxy.upstream_port = broker.front_port
        TopicAdmin(broker.bootstrap_servers).create(TOPIC, PARTITIONS)
        marks = [threading.Event() for _ in range(CAMPAIGN.kills)]
        killer = threading.Thread(target=_kill_at, args=(marks, broker))
        killer.start()
        started = time.monotonic()
        places, retried = _produce(proxy.port, marks)
        seconds = time.monotonic() - started
        killer.join()
        found = read_back(broker.bootstrap_servers, TOPIC, PARTITIONS, seconds=240)

    print(
        f"{len(places)} records in {seconds:.1f} s, {CAMPAIGN.kills} kills, {proxy.cuts} cuts,"
        f" {proxy.refused} connections refused, {retried:.0f} records sent again"
    )
    assert proxy.cuts > CAMPAIGN.cuts // 2, "most cuts never happened; the test proves little"
    assert retried > 0
    check_numbered(found, places, PARTITIONS)


def _produce(port: int, marks: list[threading.Event]) -> tuple[list[RecordMetadata], float]:
    """Send everything; where each record is, and how many were sent more than once."""
    share = CAMPAIGN.records // (len(marks) + 1)
    with KafkaProducer(
        bootstrap_servers=f"127.0.0.1:{port}",
        batch_size=BATCH_BYTES,
        buffer_memory=BUFFER_BYTES,
        delivery_timeout_ms=CAMPAIGN.seconds * 1000,
    ) as producer:
        futures = []
        for number in range(CAMPAIGN.records):
            value = numbered(number, VALUE_BYTES)
            futures.append(producer.send(TOPIC, value, partition=number % PARTITIONS))
            if number % share == share - 1 and number // share < len(marks):
                marks[number // share].set()
        report = producer.flush(timeout=CAMPAIGN.seconds)
        places = [future.get(timeout=0) for future in futures]
        assert (report.delivered, report.failed, report.pending) == (CAMPAIGN.records, 0, 0)
        return places, producer.metrics()["producer-metrics"]["record-retry-total"]


def _kill_at(marks: list[threading.Event], broker: ApacheKafka) -> None:
    for mark in marks:
        mark.wait(CAMPAIGN.seconds)
        broker.kill()
        broker.start()
