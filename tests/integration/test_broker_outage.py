"""A broker that dies in mid-work and comes back: nothing lost, doubled or reordered."""

from __future__ import annotations

import threading
import time
from pathlib import Path

import pytest

from kprod import KafkaProducer
from tests.support.broker_process import BrokerProcess
from tests.support.judge import read_back
from tests.support.numbered_records import check_numbered, numbered

RECORDS = 200_000
PARTITIONS = 6
DOWN_SECONDS = 3.0


@pytest.mark.slow
def test_a_broker_killed_for_three_seconds_costs_no_record(tmp_path: Path) -> None:
    with BrokerProcess(tmp_path, {"outage": PARTITIONS}) as broker:
        producer = KafkaProducer(bootstrap_servers=broker.bootstrap_servers)
        outage = threading.Thread(target=_kill_and_restart, args=(broker,))
        futures = []
        for number in range(RECORDS):
            futures.append(producer.send("outage", numbered(number), partition=number % PARTITIONS))
            if number == RECORDS // 3:
                broker.freeze()  # so that batches are on their way when it dies
            if number == 2 * RECORDS // 3:
                while not producer.metrics()["producer-metrics"]["requests-in-flight"]:
                    time.sleep(0.01)
                outage.start()
        report = producer.flush(timeout=50)
        outage.join()
        places = [future.get(timeout=0) for future in futures]
        retried = producer.metrics()["producer-metrics"]["record-retry-total"]
        producer.close()

        assert (report.delivered, report.failed, report.pending) == (RECORDS, 0, 0)
        assert retried > 0, "the outage missed every batch; the test proves nothing"
        found = read_back(broker.bootstrap_servers, "outage", PARTITIONS)

    check_numbered(found, places, PARTITIONS)


def _kill_and_restart(broker: BrokerProcess) -> None:
    broker.kill()
    time.sleep(DOWN_SECONDS)
    broker.start()
