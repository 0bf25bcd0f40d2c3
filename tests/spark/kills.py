"""Drivers that write one job after the other, and what kills parts of them at any moment."""

from __future__ import annotations

import json
import os
import queue
import re
import signal
import subprocess
import threading
from collections import deque
from contextlib import suppress
from pathlib import Path
from typing import Any

DAEMON = re.compile(r"daemon pyspark\.")
"""Of Python workers, and they themselves, which are forks of it."""


def spark_children(driver: int) -> dict[str, list[int]]:
    """The processes of a driver by kind: Python workers, and executors of ``local-cluster``."""
    parents: dict[int, int] = {}
    lines: dict[int, str] = {}
    for found in Path("/proc").glob("[0-9]*"):
        with suppress(OSError, IndexError, ValueError):
            pid = int(found.name)
            parents[pid] = int((found / "stat").read_text().rpartition(")")[2].split()[1])
            lines[pid] = (found / "cmdline").read_text().replace("\0", " ")

    def ours(pid: int) -> bool:
        while pid > 1 and pid != driver:
            pid = parents.get(pid, 0)
        return pid == driver

    mine = {pid: line for pid, line in lines.items() if ours(pid)}
    daemons = {pid for pid, line in mine.items() if DAEMON.search(line)}
    return {
        "worker": [pid for pid in daemons if parents[pid] in daemons],
        "executor": [p for p, line in mine.items() if "CoarseGrainedExecutorBackend" in line],
    }


class Driver:
    """A driver that writes one job after the other; what it says of them is read meanwhile."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process
        self._killed = False
        self.pid = self._process.pid
        self._said: queue.SimpleQueue[dict[str, Any]] = queue.SimpleQueue()
        self._ready = threading.Event()  # set at its end, too
        self._began = False
        self._errors: deque[str] = deque(maxlen=60)
        self._readers = [threading.Thread(target=t) for t in (self._read, self._read_errors)]
        for reader in self._readers:
            reader.start()

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            if line.startswith("{"):
                self._said.put(json.loads(line))
            elif line.startswith("ready"):
                self._began = True
                self._ready.set()
        self._ready.set()

    def _read_errors(self) -> None:
        """A pipe that nobody empties would stop the driver."""
        assert self._process.stderr is not None
        self._errors.extend(self._process.stderr)

    def await_ready(self) -> None:
        """AssertionError, with what it said, when it has ended instead."""
        assert self._ready.wait(300)
        if not self._began:
            self._process.wait(60)
            self._readers[1].join(60)
        assert self._began, "".join(self._errors)

    @property
    def runs(self) -> bool:
        return self._process.poll() is None

    def tell(self, job: dict[str, Any]) -> None:
        """Give it a job, as a line of JSON on its standard input."""
        assert self._process.stdin is not None
        with suppress(BrokenPipeError):
            self._process.stdin.write(json.dumps(job) + "\n")
            self._process.stdin.flush()

    def said(self) -> list[dict[str, Any]]:
        """The jobs that have ended since the last call."""
        found = []
        with suppress(queue.Empty):
            while True:
                found.append(self._said.get_nowait())
        return found

    def kill(self) -> None:
        """End it, its virtual machine and its executors at once. A second call does nothing."""
        if self._killed:
            return
        self._killed = True
        with suppress(ProcessLookupError):
            os.killpg(self.pid, signal.SIGKILL)
        self._process.wait()
        for reader in self._readers:
            reader.join()
        for pipe in (self._process.stdin, self._process.stdout, self._process.stderr):
            assert pipe is not None
            with suppress(BrokenPipeError):
                pipe.close()
