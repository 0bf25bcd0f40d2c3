"""Any allocations fail in any call: no crash, no hang, no untruth; the producer goes on, or ends.

``KPROD_CAMPAIGN=long`` tries every one of the first 400 positions, for each call by itself; else
some are tried, and others in the next call.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from kprod.broker import EmbeddedBroker
from tests.support.judge import read_back

ROOT = Path(__file__).parents[2]
LONG = os.environ.get("KPROD_CAMPAIGN") == "long"
STEP, SECONDS = (1, 600) if LONG else (23, 120)
LAST = 400
CALLS = (
    *("send", "get", "flush", "partitions_for", "add_callback"),
    *("turn", "send_many", "send_arrow", "close"),
)
GROUPS = CALLS if LONG else [",".join(CALLS)]


@pytest.mark.timeout(SECONDS + 60)
@pytest.mark.parametrize("width", [1, 2], ids=["alone", "in pairs"])
@pytest.mark.parametrize("calls", GROUPS)
def test_every_record_is_told_the_truth(calls: str, width: int) -> None:
    pytest.importorskip("_testcapi", reason="this Python comes without its hooks into malloc")
    topic = "scarce"
    with EmbeddedBroker(topics={topic: 1}) as broker:
        arguments = [broker.bootstrap_servers, topic, calls, str(LAST), str(STEP), str(width)]
        ended = subprocess.run(
            [sys.executable, "-m", "tests.fault.failing_allocations", *arguments],
            cwd=ROOT,
            capture_output=True,
            text=True,
            timeout=SECONDS,
            check=False,
        )
        assert ended.returncode == 0, ended.stderr[-3000:]
        died = re.search(
            r".*(did not end within|could not be closed)|Exception in thread kprod-(?s:.*)",
            ended.stderr,
        )
        assert died is None, f"a thread of a producer's: {died[0]}"
        said = json.loads(ended.stdout)
        values = [stored.value for stored in read_back(broker.bootstrap_servers, topic, 1)]
    told = {int(number): what for number, what in said["told"].items()}
    found = Counter(int(value) for value in values if value and value.isdigit())
    assert set(found.values()) == {1}, "a record was doubled"
    assert {n for n, what in told.items() if what == "stored"} <= found.keys(), "one was lost"
    untrue = {n for n, what in told.items() if what in ("refused", "NO")} & found.keys()
    assert not untrue, "it was told as not stored"
    assert "without an outcome" not in told.values()
    assert not [name for name, counts in said["calls"].items() if counts["lost"]]
    if not {"turn", "add_callback"} >= set(calls.split(",")):  # these tell of none
        assert sum(counts["failures"] for counts in said["calls"].values()) > 3, "proves nothing"
