"""The programs of docs/frameworks.md run with the frameworks and produce with kprod."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from kprod.admin import read_topic
from kprod.broker import EmbeddedBroker
from kprod.errors import BrokerError

ROOT = Path(__file__).parents[2]
ENVIRONMENTS = Path(os.environ["KPROD_FRAMEWORKS"])
PROGRAM = re.compile(r'^```python title="(\w+)\.py"\n(.*?)^```$', re.MULTILINE | re.DOTALL)
PAGE = (ROOT / "docs" / "frameworks.md").read_text()
PROGRAMS = dict(PROGRAM.findall(PAGE))
SECONDS = 90

LOG_SETUP = """
import logging
logging.getLogger("kprod").setLevel(logging.DEBUG)
logging.getLogger("kprod").addHandler(logging.FileHandler("kprod.log"))
"""
"""Prepended to each program: the log proves that kprod was used."""

EXPECTED = {
    "faststream_aiokafka": {"registered": b"User: 1 - John registered"},
    "faststream_confluent": {"welcomed": b"User: 1 - John registered"},
    "quix_streams": {"fahrenheit": b'{"degrees":68.0}'},
    "faust_streaming": {"greetings": b'"name":"kprod"'},
    "celery_kombu": {"celery": b'"task": "add"', "letters": b"application/json"},
    "airflow_hook": {"deployed": b"done"},
}
"""A part of a record value, by topic."""
ARGUMENTS = {"faust_streaming": ["worker", "--without-web"]}


@pytest.fixture(scope="module")
def broker() -> Iterator[EmbeddedBroker]:
    with EmbeddedBroker(default_partitions=1) as broker:
        yield broker


def test_every_program_of_the_page_has_an_expected_record() -> None:
    assert PROGRAMS.keys() == EXPECTED.keys()


def test_the_page_names_the_installed_versions() -> None:
    files = ("requirements.txt", "requirements-airflow.txt")
    required = [(Path(__file__).parent / name).read_text() for name in files]
    versions = re.findall(r"^[\w\[\],-]+==([\d.]+)$", "\n".join(required), re.MULTILINE)
    assert len(versions) == len(PROGRAMS)
    assert not [version for version in versions if version not in PAGE]


@pytest.mark.timeout(4 * SECONDS)
@pytest.mark.parametrize("name", EXPECTED)
def test_a_program_produces_with_kprod(name: str, broker: EmbeddedBroker, tmp_path: Path) -> None:
    code = PROGRAMS[name].replace("localhost:9092", broker.bootstrap_servers)
    (tmp_path / f"{name}.py").write_text(LOG_SETUP + code)
    environment = "airflow" if name.startswith("airflow") else "others"
    command = [str(ENVIRONMENTS / environment / "bin" / "python"), f"{name}.py"]
    with (tmp_path / "output").open("wb") as output:
        running = subprocess.Popen(
            [*command, *ARGUMENTS.get(name, [])],
            cwd=tmp_path,
            env={**os.environ, "PYTHONPATH": str(ROOT), "AIRFLOW_HOME": str(tmp_path)},
            stdout=output,
            stderr=output,
        )
        try:
            found = all(_arrives(broker, topic, part) for topic, part in EXPECTED[name].items())
        finally:
            _end(running)
    assert found, (tmp_path / "output").read_text()
    assert "is made with" in (tmp_path / "kprod.log").read_text()


def _arrives(broker: EmbeddedBroker, topic: str, part: bytes) -> bool:
    deadline = time.monotonic() + SECONDS
    while time.monotonic() < deadline:
        with suppress(BrokerError):  # the topic does not exist yet
            records = read_topic(broker.bootstrap_servers, topic)
            if any(part in (record.value or b"") for _, record in records):
                return True
        time.sleep(0.2)
    return False


def _end(running: subprocess.Popen[bytes]) -> None:
    with suppress(ProcessLookupError):
        running.send_signal(signal.SIGINT)
    try:
        running.wait(20)
    except subprocess.TimeoutExpired:
        running.kill()
        running.wait()
