"""Runs Spark for the commands. Checks whether Java is suitable, and works in a thread."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import threading
from collections.abc import Callable, Mapping
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

OLDEST = 17
VERSION = re.compile(r'version "(?:1\.)?(\d+)')


def why_no_spark() -> str | None:
    """Why Spark cannot run here; None if it can."""
    if find_spec("pyspark") is None:
        return "pyspark is not installed: pip install 'kprod[spark]'"
    return why_no_java()


def why_no_java(environment: Mapping[str, str] = os.environ) -> str | None:
    """Why the Java that Spark would use is not suitable; None if it is.

    Like Spark, this uses the Java of ``JAVA_HOME`` or, if that is not set, the first Java on
    ``PATH``.
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


if TYPE_CHECKING:
    from concurrent.futures import Future

T = TypeVar("T")
LONGEST_STOP = 20.0  # seconds
LONGEST_END = 20.0


def in_spark_thread(work: Callable[[], T], stop: Callable[[], object]) -> T:
    """Run ``work`` in a new thread, and return or raise as it does. Call it in the main thread.

    The main thread is not suitable for Spark. A signal handler runs there, and its exception would
    interrupt a call to the JVM. The next call would then read the answer to the interrupted call,
    or wait for ever behind it. Each thread has its own connection to the JVM, so calls in another
    thread are not affected. Also, PySpark installs its handler of SIGINT, which leaves other work
    running, only if a session is made in the main thread.

    If an exception is raised in the main thread meanwhile, ``stop`` is called in a third thread,
    and has ``LONGEST_STOP`` seconds. The work then has ``LONGEST_END`` more seconds to abort what
    it has open in the cluster. After that, it is abandoned.
    """
    from concurrent.futures import Future, wait

    outcome: Future[T] = Future()
    thread = threading.Thread(target=_run, args=(work, outcome), name="kprod-pipeline", daemon=True)
    thread.start()
    try:
        wait([outcome])
    except BaseException:
        stopping = threading.Thread(target=_quietly, args=(stop,), daemon=True)
        stopping.start()
        stopping.join(LONGEST_STOP)
        thread.join(LONGEST_END)
        raise
    return outcome.result()


def _run(work: Callable[[], T], outcome: Future[T]) -> None:
    try:
        outcome.set_result(work())
    except BaseException as error:
        outcome.set_exception(error)


def _quietly(stop: Callable[[], object]) -> None:
    with suppress(Exception):  # errors of Spark's shutdown do not matter
        stop()
