"""``opentelemetry-instrument python app.py``, of a program that knows nothing of it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from kprod.broker import EmbeddedBroker

APP = """
import sys
from kprod.kafka import KafkaProducer

producer = KafkaProducer(bootstrap_servers=sys.argv[1])
producer.send("t", b"v").get(timeout=30)
producer.close()
"""
ASSIGNED = """
import sys
import confluent_kafka
import kprod.confluent

confluent_kafka.Producer = kprod.confluent.Producer  # which contrib has wrapped by then

producer = confluent_kafka.Producer({"bootstrap.servers": sys.argv[1]})
producer.produce("t", b"v")
producer.flush()
producer.close()
"""
WATCHED = {
    "OTEL_TRACES_EXPORTER": "console",
    "OTEL_METRICS_EXPORTER": "console",
    "OTEL_LOGS_EXPORTER": "none",
    "OTEL_PYTHON_DISABLED_INSTRUMENTATIONS": "",
}


@pytest.mark.parametrize(
    "code",
    [
        pytest.param(APP, id="imported"),
        pytest.param(ASSIGNED, id="assigned", marks=pytest.mark.full),
    ],
)
def test_a_program_is_traced_and_metered_without_a_line_of_its_own(
    tmp_path: Path, code: str
) -> None:
    app = tmp_path / "app.py"
    app.write_text(code)
    command = Path(sys.executable).with_name("opentelemetry-instrument")
    with EmbeddedBroker(topics={"t": 1}) as broker:
        ran = subprocess.run(
            [command, sys.executable, app, broker.bootstrap_servers],
            env={**os.environ, **WATCHED},
            capture_output=True,
            text=True,
            timeout=300,
            check=False,
        )
        (record,) = broker.records("t")
    assert ran.returncode == 0, ran.stderr
    told = list(objects(ran.stdout))
    (span,) = [one for one in told if one.get("name") == "send t"]
    assert span["attributes"]["messaging.system"] == "kafka"
    carried = (dict(record.headers)["traceparent"] or b"").decode()
    assert carried.split("-")[1] == span["context"]["trace_id"].removeprefix("0x")
    assert "kprod.record-send-total" in set(_names(told))


def objects(text: str) -> Iterator[dict[str, Any]]:
    """What console exporters print: JSON objects, one after the other."""
    decoder, at = json.JSONDecoder(), text.find("{")
    while at >= 0:
        found, end = decoder.raw_decode(text, at)
        yield found
        at = text.find("{", end)


def _names(told: list[dict[str, Any]]) -> Iterator[str]:
    for one in told:
        for resource in one.get("resource_metrics", ()):
            for scope in resource["scope_metrics"]:
                yield from (metric["name"] for metric in scope["metrics"])
