"""A broker that is killed (SIGKILL) under load, again and again: each record once, in order.

``KPROD_CAMPAIGN=long`` kills it a hundred times and tells how soon records are stored again.
"""

from __future__ import annotations

import os
import statistics
import threading
import time
from pathlib import Path

import pytest

from kprod_ext.futures import FutureRecordMetadata
from tests.fault.through_proxy import through_proxy
from tests.support.broker_process import BrokerProcess
from tests.support.judge import read_back
from tests.support.numbered_records import check_numbered, numbered

KILLS = 100 if os.environ.get("KPROD_CAMPAIGN") == "long" else 2
TOPIC = "killed"
PARTITIONS = 4


class Killer:
    """Kills the broker while records flow, starts it, and waits until they flow again."""

    def __init__(self, broker: BrokerProcess) -> None:
        self.over = threading.Event()
        self.latest: FutureRecordMetadata | None = None
        self.recoveries: list[float] = []
        self._broker = broker

    def run(self) -> None:
        for _ in range(KILLS):
            self._await_next()
            self._broker.kill()
            self._broker.start()
            started = time.monotonic()
            self._await_next()
            self.recoveries.append(time.monotonic() - started)
        self.over.set()

    def _await_next(self) -> None:
        before = self.latest
        while self.latest is before:
            time.sleep(0.001)
        assert self.latest is not None
        self.latest.get(60)


@pytest.mark.timeout(360 + 5 * KILLS)
def test_each_record_is_stored_once_however_often_the_broker_dies(tmp_path: Path) -> None:
    with (
        BrokerProcess(tmp_path, {TOPIC: PARTITIONS}) as broker,
        through_proxy(broker.port, reconnect_backoff_max_ms=100, batch_size=1000) as producer,
    ):
        killer = Killer(broker)
        thread = threading.Thread(target=killer.run)
        thread.start()
        futures: list[FutureRecordMetadata] = []
        while not killer.over.is_set():
            number = len(futures)
            future = producer.send(TOPIC, numbered(number, 50), partition=number % PARTITIONS)
            futures.append(future)
            killer.latest = future
            time.sleep(0.0002)
        thread.join()
        assert producer.flush(30).failed == 0
        retried = producer.metrics()["producer-metrics"]["record-retry-total"]
        found = read_back(broker.bootstrap_servers, TOPIC, PARTITIONS, seconds=120)
    assert retried > 0, "every kill missed every batch; the test proves nothing"
    check_numbered(found, [future.get(0) for future in futures], PARTITIONS)
    worst, middle = max(killer.recoveries), statistics.median(killer.recoveries)
    print(
        f"{KILLS} kills, {len(futures):,} records, {retried:.0f} sent again;"
        f" stored again after {middle * 1000:.0f} ms (median), {worst * 1000:.0f} ms (worst)"
    )
