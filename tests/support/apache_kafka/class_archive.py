"""Makes a class archive of Apache Kafka (JEP 350), which halves the CPU time of a broker's start.

``python -m tests.support.apache_kafka.class_archive`` makes that of the newest version.
"""

from __future__ import annotations

import fcntl
import os
import signal
import tempfile
from collections.abc import Callable
from pathlib import Path

from tests.support.apache_kafka.broker import ApacheKafka, Guards, class_archive
from tests.support.apache_kafka.jars import NEWEST

SECONDS = 600


def make_broker_archive(version: str) -> None:
    """Start and stop a broker: it writes the classes that it has loaded."""

    def run(into: Path) -> None:
        guards = Guards({}, {}, [], java=(f"-XX:ArchiveClassesAtExit={into}",))
        with (
            tempfile.TemporaryDirectory() as folder,
            ApacheKafka(Path(folder, "broker"), version, guards=guards, patience=SECONDS) as broker,
        ):
            os.kill(broker.pid, signal.SIGTERM)  # it writes the archive before it exits
            os.waitid(os.P_PID, broker.pid, os.WEXITED | os.WNOWAIT)

    make_archive(class_archive(version), run)


def make_archive(archive: Path, run: Callable[[Path], None]) -> None:
    """Let ``run`` make the archive if it is missing; an incomplete one is not used."""
    archive.parent.mkdir(parents=True, exist_ok=True)
    with archive.with_suffix(".jsa.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # another process may be making it
        if not archive.exists():
            scratch = archive.with_suffix(".part")
            run(scratch)
            if scratch.exists():
                scratch.rename(archive)


if __name__ == "__main__":
    make_broker_archive(NEWEST)
