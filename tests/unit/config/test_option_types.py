"""Type annotations of the options, for editors and type checkers."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

import kprod.config.option_types
from kprod.config.option_types import ProducerOptions
from kprod.config.table import OPTIONS
from tests.architecture.sources import ROOT
from tools.pages.configuration import types_page

PROGRAM = """\
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
EXPECTED = [*range(3, 11), 12, 13]
"""Lines with a type error, counted from 1."""


def test_the_generated_types_are_up_to_date() -> None:
    kept = Path(kprod.config.option_types.__file__)
    page = ROOT / "kprod/config/option_types.py"  # with this repository's settings
    formatted = subprocess.run(
        [sys.executable, "-m", "ruff", "format", "-", "--stdin-filename", page],
        input=types_page(),
        capture_output=True,
        text=True,
        check=True,
        cwd=ROOT,
    ).stdout
    assert kept.read_text() == formatted, "run: python -m tools.pages"
    assert OPTIONS.keys() <= ProducerOptions.__annotations__.keys()


@pytest.mark.full
def test_mypy_finds_every_wrong_option(tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text(PROGRAM)
    output = subprocess.run(
        [sys.executable, "-m", "mypy", "--strict", "--no-error-summary", program],
        capture_output=True,
        text=True,
        check=False,
        cwd=ROOT,
    ).stdout
    found = {line.split(":")[1] for line in output.splitlines() if ": error:" in line}
    assert found == {str(number) for number in EXPECTED}, output
