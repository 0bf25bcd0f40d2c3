"""The programs below ``examples`` run as their first lines say, and store what they should."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from kprod.admin import read_topic
from kprod.broker import EmbeddedBroker
from tests.support.programs import ACTIVATED, run_python

ROOT = Path(__file__).parents[2]
EXAMPLES = ROOT / "examples"
ENVIRONMENT = ACTIVATED | {
    "PYTHONPATH": str(ROOT),
    "SPARK_LOCAL_IP": "127.0.0.1",
    "TOPIC": "orders",
}


@pytest.fixture(scope="module")
def broker() -> Iterator[EmbeddedBroker]:
    with EmbeddedBroker() as started:
        yield started


@pytest.fixture
def topic(broker: EmbeddedBroker, request: pytest.FixtureRequest) -> str:
    name = re.sub(r"\W", "-", request.node.name)
    broker.create_topic(name, 3)
    return name


def run(program: str, broker: EmbeddedBroker, topic: str, *arguments: str) -> str:
    servers = ["--bootstrap-servers", broker.bootstrap_servers, "--topic", topic]
    path = str(EXAMPLES / program)
    return run_python(path, *arguments, *servers, env=ENVIRONMENT, seconds=3600).stdout


def stored(broker: EmbeddedBroker, topic: str) -> list[bytes]:
    """The values that readers of committed records see, sorted."""
    return sorted(record.value or b"" for record in broker.records(topic, committed=True))


def test_send_and_check_stores_all_orders(broker: EmbeddedBroker, topic: str) -> None:
    assert "10000 of 10000 orders" in run("send_and_check.py", broker, topic)
    orders = [json.loads(value) for value in stored(broker, topic)]
    assert sorted(order["id"] for order in orders) == list(range(10_000))
    assert all(order["total"] == order["id"] * 1.5 for order in orders)


def test_asyncio_tasks_stores_all_orders(broker: EmbeddedBroker, topic: str) -> None:
    assert run("asyncio_tasks.py", broker, topic) == "stored 100 orders\n"
    assert stored(broker, topic) == sorted(b"order %d" % number for number in range(100))


def test_from_confluent_kafka_stores_all_orders(broker: EmbeddedBroker, topic: str) -> None:
    printed = run("from_confluent_kafka.py", broker, topic)
    assert printed == "1000 delivered, 0 failed, 0 without a report\n"
    assert stored(broker, topic) == sorted(b"order %d" % number for number in range(1_000))


def test_fastapi_service_stores_each_order_and_closes(broker: EmbeddedBroker, topic: str) -> None:
    environment = ENVIRONMENT | {"KAFKA": broker.bootstrap_servers, "TOPIC": topic}
    command = ["-m", "uvicorn", "examples.fastapi_service:app", "--port", "0"]
    with subprocess.Popen(
        [sys.executable, *command],
        cwd=ROOT,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    ) as service:
        assert service.stdout is not None
        url = ""
        for line in service.stdout:
            if found := re.search(r"running on (http://\S+)", line):
                url = f"{found[1]}/orders"
                break
        with ThreadPoolExecutor(20) as clients:
            answers = list(clients.map(partial(_post, url), range(20)))
        service.send_signal(signal.SIGTERM)
        output = service.stdout.read()
    assert "closed: " in output
    by_offset = {
        (partition, record.offset): record.value
        for partition, record in read_topic(broker.bootstrap_servers, topic)
    }
    for number, answer in enumerate(answers):
        order = json.loads(by_offset.pop((answer["partition"], answer["offset"])) or b"")
        assert order == {"id": number}
    assert not by_offset


def _post(url: str, number: int) -> Any:
    body = json.dumps({"id": number}).encode()
    request = urllib.request.Request(url, body, {"Content-Type": "application/json"})
    with urllib.request.urlopen(request, timeout=60) as answer:
        assert answer.status == 201
        return json.load(answer)


@pytest.mark.full
@pytest.mark.timeout(900)
def test_spark_batch_stores_all_orders(broker: EmbeddedBroker, topic: str) -> None:
    assert "100,000 records" in run("spark_batch.py", broker, topic)
    orders = [json.loads(value) for value in stored(broker, topic)]
    assert sorted(order["id"] for order in orders) == list(range(100_000))


@pytest.mark.full
@pytest.mark.timeout(1800)
def test_spark_stream_exactly_once(broker: EmbeddedBroker, topic: str, tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    for number in (1, 2):
        (tmp_path / "in" / f"{number}.txt").write_text(f"first of {number}\nsecond of {number}\n")
        folders = str(tmp_path / "in"), str(tmp_path / "checkpoint")
        run("spark_stream_exactly_once.py", broker, topic, *folders)
        run("spark_stream_exactly_once.py", broker, topic, *folders)  # again: nothing is new
    assert stored(broker, topic) == sorted(
        f"{line} of {number}".encode() for number in (1, 2) for line in ("first", "second")
    )
