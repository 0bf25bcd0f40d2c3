"""Classes of Apache Kafka as an archive that its virtual machines map (JEP 350).

That is half of the CPU time of a broker's start. ``python -m
tests.support.apache_kafka.class_archive`` makes the one of the newest version; a broker that starts
takes the archive of its version if it is there.
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
    """Let a broker start and end in order: what it has loaded by then is in its archive."""

    def run(into: Path) -> None:
        guards = Guards({}, {}, [], java=(f"-XX:ArchiveClassesAtExit={into}",))
        with (
            tempfile.TemporaryDirectory() as folder,
            ApacheKafka(Path(folder, "broker"), version, guards=guards, patience=SECONDS) as broker,
        ):
            os.kill(broker.pid, signal.SIGTERM)  # an orderly end, behind which it is written
            os.waitid(os.P_PID, broker.pid, os.WEXITED | os.WNOWAIT)

    make_archive(class_archive(version), run)


def make_archive(archive: Path, run: Callable[[Path], None]) -> None:
    """``run`` makes the archive if it is missing; what it leaves half done does not count."""
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
