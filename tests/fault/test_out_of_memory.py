"""Any one allocation fails: in ``send`` it costs the record, in the sender's turn the producer."""

from __future__ import annotations

import json
from collections import Counter

import pytest

from kprod.broker import EmbeddedBroker
from tests.support.committed_records import read_back
from tests.support.programs import run_python

TOPIC = "out-of-memory"


@pytest.mark.parametrize("codec", ["none", "zstd"])
def test_every_record_is_told_the_truth(codec: str) -> None:
    pytest.importorskip("_testcapi", reason="this Python comes without its hooks into malloc")
    with EmbeddedBroker(topics={TOPIC: 2}) as broker:
        given = broker.bootstrap_servers, TOPIC, codec
        said = json.loads(run_python("-m", "tests.fault.out_of_memory", *given).stdout)
        found = Counter(
            int(stored.value or b"") for stored in read_back(broker.bootstrap_servers, TOPIC, 2)
        )
    assert said["refused"] > 20, "hardly any allocation failed: this proves nothing"
    assert set(found.values()) == {1}, "a record was doubled"
    assert set(said["stored"]) <= found.keys(), "a record was lost"
    assert not set(said["not stored"]) & found.keys(), "it was told as not stored"
    assert (said["open"], said["taken"]) == ([], 0)
