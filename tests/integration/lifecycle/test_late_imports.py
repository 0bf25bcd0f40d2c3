"""The sender's thread imports nothing: it works on while the interpreter ends.

An import takes its time, and locks that a thread which is gone may hold. One of many modules after
Ctrl-C made named tuples, which reset CPython's mark of an interrupt that nobody had caught: the
process ended with exit code 1.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from kprod.admin import end_offsets
from kprod.broker import EmbeddedBroker
from tests.integration.lifecycle.late_imports import CODECS, TOPIC
from tests.support.ports import free_port

ROOT = Path(__file__).parents[3]


def test_no_thread_of_the_producer_imports_a_module() -> None:
    with EmbeddedBroker(topics={TOPIC: 1}) as broker:
        command = [sys.executable, "-m", "tests.integration.lifecycle.late_imports"]
        command += [broker.bootstrap_servers, str(free_port())]
        ran = subprocess.run(
            command, cwd=ROOT, capture_output=True, text=True, timeout=50, check=True
        )
        assert ran.stdout.splitlines() == ["ends"]
        assert sum(end_offsets(broker.bootstrap_servers, TOPIC).values()) == 10 * len(CODECS)
