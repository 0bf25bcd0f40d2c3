"""A broker that dies in mid-work and comes back: nothing lost, doubled or reordered."""

from __future__ import annotations

import threading
import time
from pathlib import Path

import pytest

from kprod import KafkaProducer
from tests.support.broker_process import BrokerProcess
from tests.support.judge import read_back

RECORDS = 200_000
PARTITIONS = 6
DOWN_SECONDS = 3.0


@pytest.mark.slow
def test_a_broker_killed_for_three_seconds_costs_no_record(tmp_path: Path) -> None:
    with BrokerProcess(tmp_path, {"outage": PARTITIONS}) as broker:
        producer = KafkaProducer(bootstrap_servers=broker.bootstrap_servers)
        reached = threading.Event()
        outage = threading.Thread(target=_kill_and_restart, args=(broker, reached))
        outage.start()
        futures = []
        for number in range(RECORDS):
            futures.append(producer.send("outage", b"%d" % number, partition=number % PARTITIONS))
            if number == RECORDS // 3:
                reached.set()
        report = producer.flush(timeout=50)
        outage.join()
        places = [future.get(timeout=0) for future in futures]
        retried = producer.metrics()["producer-metrics"]["record-retry-total"]
        producer.close()

        assert (report.delivered, report.failed, report.pending) == (RECORDS, 0, 0)
        assert retried > 0, "the outage missed every batch; the test proves nothing"
        found = read_back(broker.bootstrap_servers, "outage", PARTITIONS)

    per_partition: list[list[int]] = [[] for _ in range(PARTITIONS)]
    for record in found:
        per_partition[record.partition].append(int(record.value or b"-1"))
    for partition, numbers in enumerate(per_partition):
        assert numbers == list(range(partition, RECORDS, PARTITIONS))
    told = {(place.partition, place.offset) for place in places if place.offset >= 0}
    assert told <= {(record.partition, record.offset) for record in found}


def _kill_and_restart(broker: BrokerProcess, reached: threading.Event) -> None:
    reached.wait(30)
    broker.kill()
    time.sleep(DOWN_SECONDS)
    broker.start()
