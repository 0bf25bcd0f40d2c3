"""Editors complete the options, and type checkers find wrong names and types."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import kprod.config.option_types
from kprod.config.option_types import ProducerOptions
from kprod.config.table import OPTIONS
from kprod.config.types_page import types_page
from tests.architecture.sources import ROOT

MISTAKES = """\
from kprod import KafkaProducer

KafkaProducer(lingr_ms=5)
KafkaProducer(linger_ms="5")
KafkaProducer(acks="most")
KafkaProducer(compression_type="lz5")
KafkaProducer(enable_idempotence=1)
KafkaProducer(bootstrap_servers=9092)
KafkaProducer(partitioner="murmur")
KafkaProducer(interceptors=3)
producer = KafkaProducer(client_id=None, acks="all", linger_ms=5, value_serializer=str.encode)
producer.send("t", b"v", partition="1")
offset: str = producer.send("t", b"v").get(timeout=1).offset
"""
PLANTED = 10


def test_the_types_are_those_of_the_table() -> None:
    kept = Path(kprod.config.option_types.__file__)
    formatted = subprocess.run(
        [Path(sys.executable).with_name("ruff"), "format", "-", "--stdin-filename", kept],
        input=types_page(),
        capture_output=True,
        text=True,
        check=True,
        cwd=ROOT,
    ).stdout
    assert kept.read_text() == formatted, "run: python -m kprod.config types; ruff format kprod"
    assert OPTIONS.keys() <= ProducerOptions.__annotations__.keys()


def test_a_type_checker_finds_every_planted_mistake(tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text(MISTAKES)
    checked = subprocess.run(
        [sys.executable, "-m", "mypy", "--strict", "--no-error-summary", program],
        capture_output=True,
        text=True,
        check=False,
        cwd=ROOT,
    )
    found = {line.split(":")[1] for line in checked.stdout.splitlines() if ": error:" in line}
    planted = {str(number) for number in (*range(3, 11), 12, 13)}
    assert len(planted) == PLANTED
    assert found == planted, checked.stdout
