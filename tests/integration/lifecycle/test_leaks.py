"""Completed records, connections and producers leak no resources."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.integration.lifecycle import leaks
from tests.integration.lifecycle.leaks import PARTITIONS, TOPIC, Resources
from tests.support.broker_process import BrokerProcess
from tests.support.cutting_proxy import CutPlan, CuttingProxy
from tests.support.programs import run_python
from tests.support.tier import CAMPAIGN

pytestmark = pytest.mark.full

MAX_GROWTH = 8 * 2**20
MAX_NEW_OBJECTS = 1000
UP, DOWN = 40_000, 4_000
"""Maximum bytes before a connection is cut, to the broker and back."""


AMOUNTS = ("10000000", "1000", "1000") if CAMPAIGN else ("200000", "40", "40")
SECONDS = 1200 if CAMPAIGN else 55


@pytest.mark.timeout(SECONDS + 360)
def test_records_connections_and_producers_leak_nothing(tmp_path: Path) -> None:
    plan = CutPlan(seed=5, cuts=10**9, most_up=UP, most_down=DOWN)
    with BrokerProcess(tmp_path, {TOPIC: PARTITIONS}) as broker, CuttingProxy(plan) as proxy:
        proxy.upstream_port = broker.port
        args = broker.bootstrap_servers, str(proxy.port), *AMOUNTS
        ran = run_python("-m", leaks.__name__, *args, seconds=SECONDS)
    measured = [(name, Resources(*values)) for name, values in json.loads(ran.stdout)]
    _, warm = measured[0]
    for name, after in measured:
        growth = (after.memory - warm.memory) / 2**20
        print(f"{name:11} {growth:+6.2f} MiB  {after.objects - warm.objects:+6} objects  {after}")
    for name, after in measured:
        assert after.memory - warm.memory < MAX_GROWTH, name
        assert after.objects - warm.objects < MAX_NEW_OBJECTS, name
        assert (after.files, after.threads) == (warm.files, warm.threads), name
