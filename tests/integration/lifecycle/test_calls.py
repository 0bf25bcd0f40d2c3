"""Every call of a producer around its end and in callbacks, as the original has it and as kprod.

The same rows run with the package that is replaced, so that the tables say what it really does.
"""

from __future__ import annotations

import json
import subprocess
import sys
from functools import cache
from typing import Any

import pytest

from kprod.broker import EmbeddedBroker
from tests.integration.lifecycle import (
    confluent_calls,
    kafka_python_calls,
)
from tests.support.forked_rows import Row

pytestmark = [pytest.mark.full, pytest.mark.timeout(600)]
TABLES = [
    (confluent_calls, "confluent_kafka", "kprod.confluent"),
    (kafka_python_calls, "kafka", "kprod.kafka"),
]
CASES = [
    pytest.param(table.__name__, module, row, id=f"{module}-{row.name}")
    for table, *modules in TABLES
    for module in modules
    for row in table.ROWS
]


@cache
def found(program: str, module: str) -> dict[str, Any]:
    """What becomes of each row, by name: one run for all tests."""
    with EmbeddedBroker(topics={"t": 1}) as broker:
        said = subprocess.run(
            [sys.executable, "-m", program, module, broker.bootstrap_servers],
            check=True,
            capture_output=True,
            text=True,
        )
    outcomes: dict[str, Any] = json.loads(said.stdout)
    return outcomes


@pytest.mark.parametrize(("program", "module", "row"), CASES)
def test_a_call(program: str, module: str, row: Row) -> None:
    expected = row.expected(module.startswith("kprod"))
    assert found(program, module)[row.name] == expected, row.why
