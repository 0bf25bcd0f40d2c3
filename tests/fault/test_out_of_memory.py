"""A failed allocation in ``send`` loses the record, in the sender thread it ends the producer."""

from __future__ import annotations

import json
from collections import Counter

import pytest

from kprod.broker import EmbeddedBroker
from tests.support.committed_records import read_back
from tests.support.programs import run_python

TOPIC = "out-of-memory"


@pytest.mark.parametrize("codec", ["none", "zstd"])
def test_reported_outcomes_are_correct_when_allocations_fail(codec: str) -> None:
    pytest.importorskip("_testcapi", reason="this Python has no malloc hooks")
    with EmbeddedBroker(topics={TOPIC: 2}) as broker:
        args = broker.bootstrap_servers, TOPIC, codec
        results = json.loads(run_python("-m", "tests.fault.out_of_memory", *args).stdout)
        found = Counter(
            int(stored.value or b"") for stored in read_back(broker.bootstrap_servers, TOPIC, 2)
        )
    assert results["refused"] > 20, "too few allocations failed"
    assert set(found.values()) == {1}, "a record was duplicated"
    assert set(results["stored"]) <= found.keys(), "a record was lost"
    assert not set(results["not stored"]) & found.keys(), "a record was stored despite its error"
    assert (results["open"], results["allocated"]) == ([], 0)
