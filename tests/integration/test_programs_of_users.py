"""Eight programs, with the client they were written for and with kprod: one import is changed.

Each runs as a process of its own, under ``opentelemetry-instrument``, which knows kprod and the
three clients. What the program noticed and what the broker has is compared; kprod's records carry
their trace, and its metrics are exported.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from confluent_kafka.admin import AdminClient

from kprod.broker import EmbeddedBroker
from tests.support.schema_registry import FakeRegistry

pytestmark = [pytest.mark.interop, pytest.mark.slow, pytest.mark.timeout(700)]

ROOT = Path(__file__).parents[2]
PROGRAMS = Path(__file__).parent / "programs"
SECONDS = 300
IMPORTS = {
    r"from aiokafka import": "from kprod.aio import",
    r"from confluent_kafka\.error import": "from kprod.confluent import",
    r"from confluent_kafka import": "from kprod.confluent import",
    r"from kafka\.errors import": "from kprod.kafka.errors import",
    r"from kafka import": "from kprod.kafka import",
}
"""What is changed in a program, and nothing besides."""
WATCHED = {
    "OTEL_TRACES_EXPORTER": "none",
    "OTEL_METRICS_EXPORTER": "console",
    "OTEL_LOGS_EXPORTER": "none",
    "OTEL_PYTHON_DISABLED_INSTRUMENTATIONS": "",
}
WITHOUT_METRICS = {"prefork_workers"}
"""Workers of multiprocessing end without the hooks that export the last figures."""
CUT_SHORT = {"notebook"}
"""Ctrl-C ends these somewhere: how many records they had sent by then is no outcome."""


class Outcome(NamedTuple):
    """What the program noticed, and what is stored: (topic, key, value), sorted."""

    noticed: Any
    stored: list[tuple[str, bytes | None, bytes | None]]


@pytest.fixture(scope="module")
def registry() -> Iterator[FakeRegistry]:
    with FakeRegistry() as registry:
        yield registry


def names() -> list[str]:
    """Each program; that of polars where there is a polars for this Python."""
    found = sorted(path.stem for path in PROGRAMS.glob("[!_]*.py"))
    return [name for name in found if name != "etl_from_polars" or find_spec("polars")]


def run(name: str, code: str, registry: FakeRegistry, folder: Path) -> tuple[Outcome, str, bool]:
    """Run a program before a broker of its own. Also all it printed, and whether it was traced."""
    folder.mkdir()
    program = folder / f"{name}.py"
    program.write_text(code)
    command = Path(sys.executable).with_name("opentelemetry-instrument")
    with EmbeddedBroker(topics={"requests": 1, "cells": 1}, default_partitions=1) as broker:
        broker.create_topic("small", 1, {"max.message.bytes": "1000"})
        ran = subprocess.run(
            [command, sys.executable, program, broker.bootstrap_servers, registry.url],
            env={**os.environ, **WATCHED, "PYTHONPATH": str(ROOT)},
            capture_output=True,
            text=True,
            timeout=SECONDS,
            check=False,
        )
        assert ran.returncode == 0, ran.stderr
        topics = (
            AdminClient({"bootstrap.servers": broker.bootstrap_servers})
            .list_topics(timeout=30)
            .topics
        )
        records = [(topic, one) for topic in topics for one in broker.records(topic)]
    stored = sorted((topic, one.key, one.value) for topic, one in records)
    traced = all("traceparent" in dict(one.headers) for _, one in records)
    noticed = next(line for line in ran.stdout.splitlines() if line.startswith("["))
    return Outcome(json.loads(noticed), stored), ran.stdout, traced


@pytest.mark.parametrize("name", names())
def test_a_program_notices_the_same_with_kprod(
    name: str, registry: FakeRegistry, tmp_path: Path
) -> None:
    code = (PROGRAMS / f"{name}.py").read_text()
    moved = code
    for before, after in IMPORTS.items():
        moved = re.sub(f"^{before}", after, moved, flags=re.MULTILINE)
    assert moved != code
    original, _, _ = run(name, code, registry, tmp_path / "original")
    ours, printed, traced = run(name, moved, registry, tmp_path / "kprod")
    assert ours.noticed == original.noticed
    assert ours.stored
    if name in CUT_SHORT:
        in_order = [value for topic, _, value in ours.stored if topic == "cells"]
        assert sorted(map(int, filter(None, in_order))) == list(range(len(in_order)))
    else:
        assert ours.stored == original.stored
    assert traced
    assert name in WITHOUT_METRICS or "kprod.record-send-total" in printed


def test_there_are_eight_programs() -> None:
    assert len(list(PROGRAMS.glob("[!_]*.py"))) == 8
