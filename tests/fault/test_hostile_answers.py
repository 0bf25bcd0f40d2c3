"""A part of the campaigns of ``mutated_answers`` and ``answers_by_size``.

``KPROD_CAMPAIGN=long``: 50,000 mutations, and answers of up to 100 MB full of everything.
"""

from __future__ import annotations

import os
import random

import pytest

from kprod.sender.transactions import Call
from tests.fault import answers_by_size, mutated_answers
from tests.fault.answers_by_size import FILLED, measured
from tests.fault.mutated_answers import TRANSACTIONAL, Bench
from tests.support.tier import one_of

LONG = os.environ.get("KPROD_CAMPAIGN") == "long"
TIMEOUT = 1800
SIZES = answers_by_size.SIZES if LONG else (1_000_000,)
NAMES = tuple(FILLED) if LONG else ("topics", "own brokers", "record errors")


@pytest.mark.timeout(TIMEOUT)
def test_producers_outlive_mutated_answers() -> None:
    found, longest, producers = mutated_answers.run(50_000 if LONG else 300)
    of_transactions = sum(found[api.name] for api in TRANSACTIONAL)
    print(f"{dict(found)}, {producers} producers, longest step {1000 * longest:.0f} ms of CPU")
    assert of_transactions > found.total() / 5


@pytest.mark.timeout(TIMEOUT)
@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("name", one_of(*NAMES))
def test_answers_cost_no_more_than_their_size(name: str, size: int) -> None:
    figures = measured(name, size)
    print(f"{name}: {figures}")
    figures.check()


def test_a_coordinator_at_another_address_is_found_without_a_topic_in_use() -> None:
    """The one that metadata told of leads nowhere, and nothing else asks for metadata again."""
    bench = Bench(random.Random(1), 2, knows_topic=False)
    bench.cluster.host = b"gone"
    bench.call(Call.INIT)
    call = bench.unfinished
    assert call is not None
    bench.cluster.host = b"broker-1"
    assert bench.turns(60.0, lambda: call.ended.is_open, step=1.0)
    assert call.error is None
