"""A process with an open producer exits quickly, with its own exit code and without noise.

No producer thread may import a module then: an import is slow and needs locks that a dead thread
may hold. After Ctrl-C, a module with named tuples reset CPython's flag of an uncaught interrupt:
the process ended with exit code 1.
"""

from __future__ import annotations

import re
import signal
import subprocess
import time

import pytest

from kprod.admin import end_offsets
from kprod.broker import EmbeddedBroker
from tests.integration.lifecycle.exit_variants import EXIT_MS, RECORDS, TOPIC, variants
from tests.support.broker_process import BrokerProcess
from tests.support.ports import free_port
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
    "with_daemon_threads_that_wait_for_metadata",
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


PROGRAM = """
import sys, threading
from contextlib import suppress
from kprod import KafkaProducer
from kprod.errors import KprodError

def report(event, arguments):
    if event == "import" and threading.current_thread() is not threading.main_thread():
        print(threading.current_thread().name, arguments[0], flush=True)

servers, unreachable = sys.argv[1:]
lost = KafkaProducer(bootstrap_servers=unreachable, request_timeout_ms=100, max_block_ms=200)
kept = []
for codec in (None, "gzip", "snappy", "lz4", "zstd"):
    producer = KafkaProducer(
        bootstrap_servers=servers,
        linger_ms=60_000,
        request_timeout_ms=5_000,
        compression_type=codec,
    )
    kept.append(producer)
    for number in range(10):
        producer.send("t", b"%d" % number, key=b"k", headers=[("h", b"v")])
with suppress(KprodError):
    lost.send("t", b"without a broker")
sys.addaudithook(report)
print("exits")
"""
"""A process whose producers still have to send everything at exit."""


def test_producer_threads_import_no_module_at_exit() -> None:
    with EmbeddedBroker(topics={"t": 1}) as broker:
        ran = run_python("-c", PROGRAM, broker.bootstrap_servers, f"127.0.0.1:{free_port()}")
        assert ran.stdout.splitlines() == ["exits"]
        assert sum(end_offsets(broker.bootstrap_servers, "t").values()) == 50
