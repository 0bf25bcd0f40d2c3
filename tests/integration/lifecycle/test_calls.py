"""Outcomes of a Producer's calls around close and in callbacks.

The same rows run with confluent-kafka to verify the table.
"""

from __future__ import annotations

import json
from functools import cache
from typing import Any

import pytest

from kprod.broker import EmbeddedBroker
from tests.integration.lifecycle import confluent_calls
from tests.support.forked_rows import Row
from tests.support.programs import run_python
from tests.support.tier import one_of

pytestmark = pytest.mark.timeout(600)


@cache
def outcomes_of(module: str) -> dict[str, Any]:
    """The outcome of each row by name, from one run for all tests."""
    with EmbeddedBroker(topics={"t": 1}) as broker:
        ran = run_python("-m", confluent_calls.__name__, module, broker.bootstrap_servers)
    outcomes: dict[str, Any] = json.loads(ran.stdout)
    return outcomes


@pytest.mark.parametrize("row", confluent_calls.ROWS, ids=lambda row: str(row.name))
@pytest.mark.parametrize("module", one_of("kprod.confluent", "confluent_kafka"))
def test_the_outcome_of_a_call(module: str, row: Row) -> None:
    expected = row.expected(module.startswith("kprod"))
    assert outcomes_of(module)[row.name] == expected, row.why
