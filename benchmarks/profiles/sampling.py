"""Samples of where the processors are, by Linux's ``perf``: some thousand a second and thread."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import time
from collections.abc import Iterable, Iterator
from pathlib import Path

HERTZ = 5000
UNTIL_IT_SAMPLES = 0.7
"""Seconds that perf takes to begin; it does not tell."""
_SAMPLE = re.compile(r"\s*(?P<thread>\d+)\s+[0-9a-f]+ .*\((?P<library>[^()]*)\)$")


class NoProfiler(Exception):
    """There is no perf, or it may not look at processes."""


class Sampling:
    """Samples all threads of this process into ``file``, from where it is made until ``stop``."""

    @staticmethod
    def check() -> None:
        """Raises NoProfiler, with what to do about it, where there is no perf."""
        if shutil.which("perf") is None:
            raise NoProfiler("perf is not installed: it is in Debian's package linux-perf")

    def __init__(self, file: Path) -> None:
        """Raises NoProfiler."""
        self.check()
        command = ["perf", "record", "--quiet", "-F", str(HERTZ), "-o", str(file)]
        self._perf = subprocess.Popen(
            [*command, "-p", str(os.getpid())], stderr=subprocess.PIPE, text=True
        )
        time.sleep(UNTIL_IT_SAMPLES)
        if self._perf.poll() is not None:
            _, said = self._perf.communicate()
            raise NoProfiler(f"perf cannot sample a process of its own user: {said.strip()}")

    def stop(self) -> None:
        """Write what was sampled."""
        self._perf.send_signal(signal.SIGINT)
        self._perf.communicate()


def samples(file: Path) -> list[tuple[int, str]]:
    """The thread and the library of every sample."""
    command = ["perf", "script", "-i", str(file), "-F", "tid,ip,sym,dso"]
    ran = subprocess.run(command, check=True, capture_output=True, text=True)
    return list(parsed(ran.stdout.splitlines()))


def parsed(lines: Iterable[str]) -> Iterator[tuple[int, str]]:
    """What perf has written, a sample a line; anything else is passed over."""
    for line in lines:
        found = _SAMPLE.match(line)
        if found is not None:
            yield int(found["thread"]), found["library"]
