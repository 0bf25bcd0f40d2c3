"""A signal handler that raises anywhere loses no records except interrupted sends."""

from __future__ import annotations

import json
from collections import Counter

import pytest

from tests.integration.lifecycle import interrupted
from tests.integration.lifecycle.interrupted import PARTITIONS, TOPIC
from tests.support.broker_process import BrokerProcess
from tests.support.committed_records import Stored, read_back
from tests.support.programs import run_python
from tests.support.tier import CAMPAIGN, one_of

INTERRUPTIONS = 10_000 if CAMPAIGN else 500


@pytest.mark.parametrize("habit", one_of("mixed", "lone"))
def test_interruptions_lose_and_duplicate_no_record(broker: BrokerProcess, habit: str) -> None:
    args = str(INTERRUPTIONS), broker.bootstrap_servers, habit
    ran = run_python("-m", interrupted.__name__, *args)
    results = json.loads(ran.stdout)
    found = read_back(broker.bootstrap_servers, TOPIC, PARTITIONS)

    assert results["interruptions"] == INTERRUPTIONS
    assert (results["not_ended"], results["report"]) == (0, [0, 0])
    assert (results["used"], results["waiting"]) == (0, 0)
    times = Counter(map(number_of, found))
    assert set(times.values()) == {1}, "a record was duplicated"
    assert set(results["stored"]) <= times.keys(), "a record was lost"
    for partition in range(PARTITIONS):
        numbers = [number_of(stored) for stored in found if stored.partition == partition]
        assert numbers == sorted(numbers)
    print(f"{INTERRUPTIONS} interruptions, {len(found)} records, {len(ran.stderr)} bytes of log")


def number_of(stored: Stored) -> int:
    """The number of a record; AssertionError if it is damaged."""
    number, _, rest = (stored.value or b"").partition(b"|")
    assert rest
    assert rest == number * (len(rest) // len(number)), "a record was damaged"
    return int(number)
