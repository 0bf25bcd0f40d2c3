"""A process with an open producer exits quickly, with its own exit code and without noise.

After Ctrl-C, a producer thread that imported a module with named tuples reset CPython's flag of an
uncaught interrupt: the process ended with exit code 1.
"""

from __future__ import annotations

import re
import signal
import subprocess
import time

import pytest

from kprod.admin import end_offsets
from tests.integration.lifecycle.exit_variants import EXIT_MS, RECORDS, TOPIC, variants
from tests.support.broker_process import BrokerProcess
from tests.support.programs import run_python
from tests.support.tier import CAMPAIGN

PARTITIONS = 2
RUNS = 13 if CAMPAIGN else 1
PROMISED = EXIT_MS / 1000 + 2.0
LATE = 2.0 if RUNS > 1 else 20.0
"""Tolerated seconds beyond the promise on a busy machine."""

CHILD_VARIANTS = [name for name in variants() if re.search("_child|_pool|_worker", name)]
QUICK = (
    "without_close",
    "by_an_error",
    "by_ctrl_c",
    "by_sigterm",
    "with_daemon_threads_that_send",
    "while_the_broker_hangs",
    CHILD_VARIANTS[0],
)

EXIT_CODES = {"by_an_error": 1, "by_ctrl_c": -signal.SIGINT, "by_sigterm": 128 + signal.SIGTERM}
ANY_COUNT = (
    "with_daemon_threads_that_send",
    "with_a_callback_that_blocks",
    "while_the_broker_hangs",
    "with_daemon_threads_that_wait_for_memory",
)
"""These may deliver any number of records."""
APPLICATION_ERRORS = {"by_an_error": "ValueError", "by_ctrl_c": "KeyboardInterrupt"}


@pytest.mark.timeout(360 * RUNS)
@pytest.mark.parametrize(
    "variant",
    [
        pytest.param(name, marks=() if name in QUICK else pytest.mark.full, id=name)
        for name in variants()
    ],
)
def test_the_process_exits_in_time_and_cleanly(variant: str, broker: BrokerProcess) -> None:
    worst = 0.0
    for _ in range(RUNS):
        before = stored(broker)
        ran, took = run_variant(variant, broker)
        assert ran.returncode == EXIT_CODES.get(variant, 0), ran.stderr
        assert took < PROMISED + LATE
        worst = max(worst, took)
        check_output(variant, ran)
        if variant not in ANY_COUNT:
            assert stored(broker) - before == RECORDS
    print(f"{variant}: {RUNS} exits, the slowest took {worst:.2f} s")


def check_output(variant: str, ran: subprocess.CompletedProcess[str]) -> None:
    """The output contains only errors of the application itself."""
    assert "Fatal Python error" not in ran.stderr
    assert "too late" not in ran.stdout
    if variant in APPLICATION_ERRORS:
        assert APPLICATION_ERRORS[variant] in ran.stderr
        assert ran.stderr.count("Traceback") == 1, ran.stderr
        return
    assert "Exception ignored" not in ran.stderr, ran.stderr
    assert "Traceback" not in ran.stderr, ran.stderr


def run_variant(
    variant: str, broker: BrokerProcess
) -> tuple[subprocess.CompletedProcess[str], float]:
    """The ended process, and the seconds its exit took."""
    module = "tests.integration.lifecycle.exit_variants"
    args = variant, broker.bootstrap_servers, str(broker.pid)
    ran = run_python("-X", "faulthandler", "-m", module, *args, check=False, seconds=50)
    end = time.monotonic()
    broker.thaw()
    start = max(float(line) for line in ran.stdout.splitlines() if line[0].isdigit())
    return ran, end - start


def stored(broker: BrokerProcess) -> int:
    return sum(end_offsets(broker.bootstrap_servers, TOPIC).values())
