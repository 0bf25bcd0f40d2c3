"""A part of the campaign of ``mutated_answers``; ``KPROD_CAMPAIGN=long``: 50,000 mutations."""

from __future__ import annotations

import os
import random

import pytest

from kprod.sender.transactions import Call
from tests.fault import mutated_answers
from tests.fault.mutated_answers import TRANSACTIONAL, Bench

LONG = os.environ.get("KPROD_CAMPAIGN") == "long"
TIMEOUT = 1800


@pytest.mark.timeout(TIMEOUT)
def test_producers_outlive_mutated_answers() -> None:
    found, longest, producers = mutated_answers.run(50_000 if LONG else 300)
    of_transactions = sum(found[api.name] for api in TRANSACTIONAL)
    print(f"{dict(found)}, {producers} producers, longest step {1000 * longest:.0f} ms of CPU")
    assert of_transactions > found.total() / 5


def test_a_coordinator_at_another_address_is_found_without_a_topic_in_use() -> None:
    """The one that metadata told of leads nowhere, and nothing else asks for metadata again."""
    bench = Bench(random.Random(1), 2, knows_topic=False)
    bench.broker.host = "gone"
    bench.call(Call.INIT)
    call = bench.unfinished
    assert call is not None
    bench.broker.host = "broker-1"
    assert bench.turns(60.0, lambda: call.ended.is_open, step=1.0)
    assert call.error is None
