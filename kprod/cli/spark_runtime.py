"""What the commands need of Spark: a Java that runs it, and a thread of its own."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import threading
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Generic, TypeVar

OLDEST = 17
VERSION = re.compile(r'version "(?:1\.)?(\d+)')


def why_no_java(environment: Mapping[str, str] = os.environ) -> str | None:
    """What is wrong with the Java that Spark would start, None when it can run Spark.

    As Spark does: the one of ``JAVA_HOME`` when that is set, else the first on ``PATH``.
    """
    program = _program(environment)
    if program is None:
        return f"Spark needs Java {OLDEST} or newer, and there is none"
    try:
        ran = subprocess.run(
            [program, "-version"], capture_output=True, text=True, timeout=30, check=True
        )
    except (OSError, subprocess.SubprocessError) as error:
        return f"Spark needs Java {OLDEST} or newer, and {program} does not run: {error}"
    found = VERSION.search(ran.stderr + ran.stdout)
    if found is None or int(found[1]) < OLDEST:
        version = found[1] if found else "of unknown version"
        return f"Spark needs Java {OLDEST} or newer; {program} is Java {version}"
    return None


def _program(environment: Mapping[str, str]) -> str | None:
    home = environment.get("JAVA_HOME")
    if home:
        return str(Path(home) / "bin" / "java")
    return shutil.which("java", path=environment.get("PATH"))


T = TypeVar("T")
LONGEST_STOP = 20.0  # seconds
LONGEST_END = 3.0


class SparkThread(Generic[T]):
    """Runs ``work`` in another thread while the main one waits and may be told to stop.

    A signal's handler runs in the main thread, and its exception would end a call to the JVM
    there: the answer would be taken for that to the next call, and what the JVM still does for the
    first would keep the next one waiting for ever. Each thread has a connection of its own to the
    JVM, so that ``stop`` is heard at once. PySpark's own handler of SIGINT, which does not bother
    with the rest, is only installed by a session that the main thread makes.
    """

    def __init__(self, work: Callable[[], T]) -> None:
        self._work = work
        self._over = threading.Event()
        self._outcome: Callable[[], T] = self._not_over
        self._thread = threading.Thread(target=self._run, name="kprod-pipeline", daemon=True)

    def _run(self) -> None:
        try:
            done = self._work()
            self._outcome = lambda: done
        except BaseException as error:
            failure = error

            def fail() -> T:
                raise failure

            self._outcome = fail
        finally:
            self._over.set()

    def result(self, stop: Callable[[], object]) -> T:
        """What ``work`` returns or raises. Main thread.

        If something else is raised here meanwhile, ``stop`` is called in another thread and has
        ``LONGEST_STOP`` seconds, the work ``LONGEST_END`` more; what goes on then is abandoned.
        """
        self._thread.start()
        try:
            self._over.wait()
        except BaseException:
            stopping = threading.Thread(target=_quietly, args=(stop,), daemon=True)
            stopping.start()
            stopping.join(LONGEST_STOP)
            self._thread.join(LONGEST_END)
            raise
        return self._outcome()

    def _not_over(self) -> T:
        raise AssertionError("asked for before the end")


def _quietly(stop: Callable[[], object]) -> None:
    with suppress(Exception):  # Spark's complaints about its own end are nobody's business
        stop()
