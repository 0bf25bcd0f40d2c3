"""Type annotations of the options, for editors and type checkers."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import kprod.config.option_types
from kprod import KafkaProducer
from kprod.config.option_types import ProducerOptions
from kprod.config.table import OPTIONS
from tests.architecture.sources import ROOT
from tools.pages.configuration import types_page


def wrong_options() -> None:
    """mypy reports every line: it reports an ignored error that is none as well."""
    KafkaProducer(lingr_ms=5)  # type: ignore[call-arg]
    KafkaProducer(linger_ms="5")  # type: ignore[arg-type]
    KafkaProducer(acks="most")  # type: ignore[arg-type]
    KafkaProducer(compression_type="lz5")  # type: ignore[arg-type]
    KafkaProducer(enable_idempotence=1)  # type: ignore[arg-type]
    KafkaProducer(partitioner="murmur")  # type: ignore[arg-type]
    producer = KafkaProducer(client_id=None, acks="all", value_serializer=str.encode)
    offset: str = producer.send("t", b"v").get(timeout=1).offset  # type: ignore[assignment]
    print(offset)


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
