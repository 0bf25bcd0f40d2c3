"""A producer gives back what it took for topics that are not used any more."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.broker_process import BrokerProcess

ROOT = Path(__file__).parents[3]
TOPICS, IDLE, SECONDS = 12_000, 200, 1800
MOST_KEPT = 5_000_000


@pytest.mark.skipif(
    os.environ.get("KPROD_CAMPAIGN") != "long",
    reason="ten minutes; unit/sender/test_unused_topics.py counts what a few hundred topics keep",
)
@pytest.mark.timeout(SECONDS + 360)
def test_topics_that_were_used_once_take_no_memory(tmp_path: Path) -> None:
    with BrokerProcess(tmp_path, {"in-use": 1}) as broker:
        command = [sys.executable, "-m", "tests.integration.lifecycle.unused_topics"]
        command += [broker.bootstrap_servers, str(TOPICS), str(IDLE)]
        ended = subprocess.run(
            command, cwd=ROOT, capture_output=True, text=True, timeout=SECONDS, check=False
        )
        broker.kill()  # thirteen thousand logs are closed with care otherwise
    assert ended.returncode == 0, ended.stderr
    before, meanwhile, afterwards = json.loads(ended.stdout)
    for name, resident, used in (meanwhile, afterwards):
        more, grown = (resident - before[1]) / 1e6, (used - before[2]) / 1e6
        print(f"{name:10} {grown:+6.2f} MB in use, {more:+6.2f} MB resident")
    assert meanwhile[2] - before[2] > MOST_KEPT, "this measures nothing"
    assert afterwards[2] - before[2] < MOST_KEPT
