"""A process that forgets its producer ends soon, with its own exit code, and in peace.

No thread of the producer imports a module then: an import takes its time, and locks that a thread
which is gone may hold. One of many modules after Ctrl-C made named tuples, which reset CPython's
mark of an interrupt that nobody had caught: the process ended with exit code 1.
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
"""Seconds a busy machine may take longer than promised."""

OF_CHILDREN = [name for name in variants() if re.search("_child|_pool|_worker", name)]
USUAL = (
    "without_close",
    "by_an_error",
    "by_ctrl_c",
    "by_sigterm",
    "with_daemon_threads_that_send",
    "while_the_broker_hangs",
    OF_CHILDREN[0],
)

EXIT_CODES = {"by_an_error": 1, "by_ctrl_c": -signal.SIGINT, "by_sigterm": 128 + signal.SIGTERM}
UNKNOWN = (
    "with_daemon_threads_that_send",
    "with_a_callback_that_blocks",
    "while_the_broker_hangs",
    "with_daemon_threads_that_wait_for_memory",
    "with_daemon_threads_that_wait_for_metadata",
)
"""How many records these have delivered is no matter."""
ERRORS_OF_ITS_OWN = {"by_an_error": "ValueError", "by_ctrl_c": "KeyboardInterrupt"}


@pytest.mark.timeout(360 * RUNS)
@pytest.mark.parametrize(
    "variant",
    [
        pytest.param(name, marks=() if name in USUAL else pytest.mark.full, id=name)
        for name in variants()
    ],
)
def test_the_process_ends(variant: str, broker: BrokerProcess) -> None:
    worst = 0.0
    for _ in range(RUNS):
        before = stored(broker)
        ended, took = end_a_process(variant, broker)
        assert ended.returncode == EXIT_CODES.get(variant, 0), ended.stderr
        assert took < PROMISED + LATE
        worst = max(worst, took)
        check_peace(variant, ended)
        if variant not in UNKNOWN:
            assert stored(broker) - before == RECORDS
    print(f"{variant}: {RUNS} exits, the slowest took {worst:.2f} s")


def check_peace(variant: str, ended: subprocess.CompletedProcess[str]) -> None:
    """Nothing was said but what the application itself has to say."""
    assert "Fatal Python error" not in ended.stderr
    assert "too late" not in ended.stdout
    if variant in ERRORS_OF_ITS_OWN:
        assert ERRORS_OF_ITS_OWN[variant] in ended.stderr
        assert ended.stderr.count("Traceback") == 1, ended.stderr
        return
    assert "Exception ignored" not in ended.stderr, ended.stderr
    assert "Traceback" not in ended.stderr, ended.stderr


def end_a_process(
    variant: str, broker: BrokerProcess
) -> tuple[subprocess.CompletedProcess[str], float]:
    """What it was like, and the seconds from its last own step to its end."""
    module = "tests.integration.lifecycle.exit_variants"
    given = variant, broker.bootstrap_servers, str(broker.pid)
    ended = run_python("-X", "faulthandler", "-m", module, *given, check=False, seconds=50)
    over = time.monotonic()
    broker.thaw()
    last_step = max(float(line) for line in ended.stdout.splitlines() if line[0].isdigit())
    return ended, over - last_step


def stored(broker: BrokerProcess) -> int:
    return sum(end_offsets(broker.bootstrap_servers, TOPIC).values())


ENDS = """
import sys, threading
from contextlib import suppress
from kprod import KafkaProducer
from kprod.errors import KprodError

def tell(event, arguments):
    if event == "import" and threading.current_thread() is not threading.main_thread():
        print(threading.current_thread().name, arguments[0], flush=True)

servers, nobody = sys.argv[1:]
lost = KafkaProducer(bootstrap_servers=nobody, request_timeout_ms=100, max_block_ms=200)
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
    lost.send("t", b"to nobody")
sys.addaudithook(tell)
print("ends")
"""
"""A process whose producers have everything left to do at its end."""


def test_no_thread_of_the_producer_imports_a_module() -> None:
    with EmbeddedBroker(topics={"t": 1}) as broker:
        ran = run_python("-c", ENDS, broker.bootstrap_servers, f"127.0.0.1:{free_port()}")
        assert ran.stdout.splitlines() == ["ends"]
        assert sum(end_offsets(broker.bootstrap_servers, "t").values()) == 50
