"""Brokers, and our own process, that are stopped (SIGSTOP) for longer than a request may take."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from kprod import KafkaProducer
from kprod_ext.futures import FutureRecordMetadata
from tests.integration.lifecycle.account import Truth
from tests.support.broker_process import BrokerProcess
from tests.support.frozen import freeze, thaw
from tests.support.judge import read_back
from tests.support.numbered_records import check_numbered, numbered
from tests.support.tansu_process import TansuProcess

pytestmark = pytest.mark.full

ROOT = Path(__file__).parents[2]
TIMES = 30 if os.environ.get("KPROD_CAMPAIGN") == "long" else 2
TOPIC = "frozen"
PARTITIONS = 3
REQUEST_TIMEOUT = 0.2
FROZEN = 0.5


def producer_for(broker: BrokerProcess | TansuProcess) -> KafkaProducer:
    """One that notices soon when nothing is answered, and waits as long as it takes."""
    return KafkaProducer(
        bootstrap_servers=broker.bootstrap_servers,
        batch_size=500,
        request_timeout_ms=int(REQUEST_TIMEOUT * 1000),
        retry_backoff_ms=10,
        reconnect_backoff_ms=10,
        reconnect_backoff_max_ms=100,
        socket_connection_setup_timeout_ms=200,
    )


@pytest.mark.timeout(360 + 2 * TIMES)
@pytest.mark.parametrize("kind", ["embedded", "tansu"])
def test_a_broker_that_hangs_again_and_again(tmp_path: Path, kind: str) -> None:
    topics = {TOPIC: PARTITIONS}
    with (
        BrokerProcess(tmp_path, topics) if kind == "embedded" else TansuProcess(topics) as broker,
        producer_for(broker) as producer,
    ):
        over = threading.Event()

        def freeze_and_thaw() -> None:
            for _ in range(TIMES):
                broker.freeze()
                time.sleep(FROZEN)
                broker.thaw()
                time.sleep(FROZEN / 2)
            over.set()

        producer.partitions_for(TOPIC)
        hangs = threading.Thread(target=freeze_and_thaw)
        hangs.start()
        futures: list[FutureRecordMetadata] = []
        while not over.is_set():
            number = len(futures)
            futures.append(producer.send(TOPIC, numbered(number), partition=number % PARTITIONS))
            time.sleep(0.0002)
        hangs.join()
        assert producer.flush(30).failed == 0
        retried = producer.metrics()["producer-metrics"]["record-retry-total"]
        found = read_back(broker.bootstrap_servers, TOPIC, PARTITIONS)
    assert retried > 0, "nothing was on its way when the broker hung; the test proves nothing"
    check_numbered(found, [future.get(0) for future in futures], PARTITIONS)
    print(f"{kind}: {TIMES} times frozen, {len(futures)} records, {retried:.0f} sent again")


def test_a_broker_that_hangs_and_then_dies(tmp_path: Path) -> None:
    """What it had read and not answered is in its log, or not: once in both cases."""
    with BrokerProcess(tmp_path, {TOPIC: PARTITIONS}) as broker, producer_for(broker) as producer:
        futures: list[FutureRecordMetadata] = []

        def send(records: int) -> None:
            for number in range(len(futures), len(futures) + records):
                partition = number % PARTITIONS
                futures.append(producer.send(TOPIC, numbered(number), partition=partition))

        send(100)
        producer.flush(20)
        for _ in range(2):
            send(1000)
            broker.freeze()
            send(1000)
            time.sleep(REQUEST_TIMEOUT)
            broker.kill()
            broker.start()
            assert producer.flush(30).failed == 0
        found = read_back(broker.bootstrap_servers, TOPIC, PARTITIONS)
    check_numbered(found, [future.get(0) for future in futures], PARTITIONS)


@pytest.mark.parametrize("delivery_timeout_ms", [120_000, 300], ids=["patient", "impatient"])
def test_a_process_that_is_stopped_says_what_is_true(
    tmp_path: Path, delivery_timeout_ms: int
) -> None:
    with BrokerProcess(tmp_path, {TOPIC: 2}) as broker:
        command = [sys.executable, "-m", "tests.fault.stopped_sender", broker.bootstrap_servers]
        command += [TOPIC, str(delivery_timeout_ms)]
        with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) as process:
            assert process.stdout is not None
            try:
                assert process.stdout.readline() == "sending\n"
                freeze(process.pid)
                time.sleep(2 * FROZEN)
                thaw(process.pid)
                truth = Truth(*json.loads(process.stdout.readline()))
                assert process.wait(30) == 0
            finally:
                process.kill()
    assert truth.stored >= 50
    if delivery_timeout_ms > 1000:
        assert (truth.not_stored, truth.maybe_stored) == (0, 0)
