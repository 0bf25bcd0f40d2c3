"""Eight programs, with the client they were written for and with kprod: one import is changed.

Each runs as a process of its own, under ``opentelemetry-instrument``, which knows kprod and the
three clients. What the program noticed and what the broker has is compared. With either client each
record carries the trace of a span that is exported, and both have the same attributes; kprod's
metrics are exported. ``pytest -rP`` shows what was counted.
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
from tests.support.console_spans import Span, spans
from tests.support.schema_registry import FakeRegistry

pytestmark = [pytest.mark.full, pytest.mark.timeout(700)]

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
    "OTEL_TRACES_EXPORTER": "console",
    "OTEL_BSP_MAX_QUEUE_SIZE": "100000",  # spans of a full queue are dropped
    # All is printed at the end, one exporter after the other: two would write into each other.
    "OTEL_BSP_MAX_EXPORT_BATCH_SIZE": "100000",
    "OTEL_BSP_SCHEDULE_DELAY": "3600000",
    "OTEL_METRIC_EXPORT_INTERVAL": "3600000",
    "OTEL_METRICS_EXPORTER": "console",
    "OTEL_LOGS_EXPORTER": "none",
    "OTEL_PYTHON_DISABLED_INSTRUMENTATIONS": "",
}
FLUSHED = """
from opentelemetry import trace
trace.get_tracer_provider().force_flush()
"""
"""Behind the last line of a program: at its exit spans are waited for no longer than 30 s, and a
busy machine would go on printing them between the lines of the metrics."""
WITHOUT_EXPORTS = {"prefork_workers"}
"""Workers of multiprocessing end without the hooks that export the last spans and figures."""
NOT_INSTRUMENTED = {"registry_serializers"}
"""Written for confluent-kafka's SerializingProducer, which OpenTelemetry's package leaves alone."""
CUT_SHORT = {"notebook"}
"""Ctrl-C ends these somewhere: how many records they had sent by then is no outcome."""


class Outcome(NamedTuple):
    """What the program noticed, and what is stored: (topic, key, value), sorted.

    ``carried`` is the topic and the span of each record whose headers carry one, as 32 and 16
    digits; ``spans`` are those that were exported by these.
    """

    noticed: Any
    stored: list[tuple[str, bytes | None, bytes | None]]
    carried: list[tuple[str, tuple[str, str]]]
    spans: dict[tuple[str, str], Span]
    printed: str


@pytest.fixture(scope="module")
def registry() -> Iterator[FakeRegistry]:
    with FakeRegistry() as registry:
        yield registry


def names() -> list[str]:
    """Each program; that of polars where there is a polars for this Python."""
    found = sorted(path.stem for path in PROGRAMS.glob("[!_]*.py"))
    return [name for name in found if name != "etl_from_polars" or find_spec("polars")]


def run(name: str, code: str, registry: FakeRegistry, folder: Path) -> Outcome:
    """Run a program before a broker of its own."""
    folder.mkdir()
    program = folder / f"{name}.py"
    program.write_text(code + FLUSHED)
    command = Path(sys.executable).with_name("opentelemetry-instrument")
    exported = {"OTEL_TRACES_EXPORTER": "none"} if name in WITHOUT_EXPORTS else {}
    with EmbeddedBroker(topics={"requests": 1, "cells": 1}, default_partitions=1) as broker:
        broker.create_topic("small", 1, {"max.message.bytes": "1000"})
        ran = subprocess.run(
            [command, sys.executable, program, broker.bootstrap_servers, registry.url],
            env={**os.environ, **WATCHED, **exported, "PYTHONPATH": str(ROOT)},
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
    noticed = next(line for line in ran.stdout.splitlines() if line.startswith("["))
    contexts = [(topic, dict(one.headers).get("traceparent")) for topic, one in records]
    return Outcome(
        noticed=json.JSONDecoder().raw_decode(noticed)[0],
        stored=sorted((topic, one.key, one.value) for topic, one in records),
        carried=[(topic, _context(found)) for topic, found in contexts if found is not None],
        spans={(span.trace_id, span.span_id): span for span in spans(ran.stdout)},
        printed=ran.stdout,
    )


def _context(traceparent: bytes) -> tuple[str, str]:
    _version, trace_id, span_id, _flags = traceparent.decode().split("-")
    return trace_id, span_id


def assert_traced(name: str, outcome: Outcome, bare: int = 0) -> None:
    """Each stored record carries a span of its own, which tells of its topic, but ``bare``."""
    assert len(outcome.carried) == len(outcome.stored)
    assert len({context for _, context in outcome.carried}) == len(outcome.stored)
    if name in WITHOUT_EXPORTS:
        return
    found = [(topic, outcome.spans[context]) for topic, context in outcome.carried]
    others = [
        (topic, span)
        for topic, span in found
        if (span.kind, span.system, span.destination) != ("PRODUCER", "kafka", topic)
    ]
    assert len(others) <= bare, others


@pytest.mark.parametrize("name", names())
def test_a_program_notices_the_same_with_kprod(
    name: str, registry: FakeRegistry, tmp_path: Path
) -> None:
    code = (PROGRAMS / f"{name}.py").read_text()
    moved = code
    for before, after in IMPORTS.items():
        moved = re.sub(f"^{before}", after, moved, flags=re.MULTILINE)
    assert moved != code
    original = run(name, code, registry, tmp_path / "original")
    ours = run(name, moved, registry, tmp_path / "kprod")
    assert ours.noticed == original.noticed
    assert ours.stored
    if name in CUT_SHORT:
        in_order = [value for topic, _, value in ours.stored if topic == "cells"]
        assert sorted(map(int, filter(None, in_order))) == list(range(len(in_order)))
    else:
        assert ours.stored == original.stored
    assert_traced(name, ours)
    if name in NOT_INSTRUMENTED:
        assert not original.carried
    else:
        # Ctrl-C may come before the instrumentation of the original has described its span.
        assert_traced(name, original, bare=1 if name in CUT_SHORT else 0)
        if name not in CUT_SHORT:  # a record that is refused has a second span
            assert len(ours.spans) <= len(original.spans) + 5
    assert name in WITHOUT_EXPORTS or "kprod.record-send-total" in ours.printed
    for client, ran in (("original", original), ("kprod", ours)):
        counts = f"{len(ran.stored)} records, {len(ran.carried)} carry a trace"
        print(f"{name}, {client}: {counts}, {len(ran.spans)} spans")


def test_there_are_eight_programs() -> None:
    assert len(list(PROGRAMS.glob("[!_]*.py"))) == 8
