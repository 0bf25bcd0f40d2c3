"""Ctrl-C ends every call that blocks, at once, and leaves a producer that can go on, or close."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from tests.integration.lifecycle import blocked
from tests.support.broker_process import BrokerProcess
from tests.support.tier import one_of

ROOT = Path(__file__).parents[3]
TOPIC, PARTITIONS = blocked.TOPIC, 2
RUNS = 20 if os.environ.get("KPROD_CAMPAIGN") == "long" else 1
PROMISED = 0.25
LATE = 2.0 if RUNS > 1 else 20.0
"""Seconds a busy machine may take longer than promised: a campaign has one of its own."""
WHILE_OPEN = [
    "send_waiting_for_memory",
    "send_waiting_for_metadata",
    "partitions",
    "flush",
    "get",
]
WHILE_CLOSING = ["close", "leave"]


@pytest.mark.timeout(360 * RUNS)
@pytest.mark.parametrize("call", [*one_of(*WHILE_OPEN), *one_of(*WHILE_CLOSING)])
def test_ctrl_c_ends_a_call_that_blocks(call: str, broker: BrokerProcess) -> None:
    worst = 0.0
    for _ in range(RUNS):
        took, state = interrupt(call, broker)
        worst = max(worst, took)
        assert took < PROMISED + LATE
        assert state["works"] is (call in WHILE_OPEN)
        assert (state["used"], state["waiting"], state["threads"]) == (0, 0, [])
        assert (state["pending"], state["failed"]) == (0, 0)
        assert state["ended"] == state["sent"] >= 10
        # The send that was interrupted may have queued its record.
        assert state["stored"] >= state["sent"]
    print(f"{call}: Ctrl-C honoured within {worst * 1000:.1f} ms, in {RUNS} runs")


def interrupt(call: str, broker: BrokerProcess) -> tuple[float, dict[str, Any]]:
    """Seconds until Ctrl-C was honoured, and what the producer was like when all was over."""
    command = [sys.executable, "-m", "tests.integration.lifecycle.blocked"]
    command += [call, broker.bootstrap_servers, str(broker.pid)]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            assert process.stdout.readline() == "blocked\n"
            struck = time.monotonic()
            process.send_signal(signal.SIGINT)
            honoured = float(process.stdout.readline())
            state: dict[str, Any] = json.loads(process.stdout.readline())
            assert process.wait(20) == 0
        finally:
            broker.thaw()
            process.kill()
    return honoured - struck, state
