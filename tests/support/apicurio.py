"""Apicurio Registry, which is not ours: fetched by Maven once, run from ``build/``"""

from __future__ import annotations

import fcntl
import functools
import os
import shutil
import subprocess
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from tests.support.ports import free_port

VERSION = "2.6.13.Final"
ARTIFACT = f"io.apicurio:apicurio-registry-app:{VERSION}:tar.gz:all"
UNPACK = "org.apache.maven.plugins:maven-dependency-plugin:3.8.1:unpack"
CACHE = Path(__file__).parents[2] / "build" / "apicurio"
FETCH_SECONDS, START_SECONDS = 280, 120
LINES_TOLD = 20


@contextmanager
def running() -> Iterator[str]:
    """The address of an empty one. Without Java or Maven the test is skipped; in CI it fails."""
    folder, why_not = _fetched()
    if why_not is not None:
        if "CI" in os.environ:
            pytest.fail(why_not, pytrace=False)
        pytest.skip(why_not)
    port = free_port()
    url = f"http://127.0.0.1:{port}/apis/ccompat/v7"
    command = ["java", "-Xmx512m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"]
    command += [f"-Dquarkus.http.port={port}", "-Dquarkus.http.host=127.0.0.1"]
    command += ["-jar", str(folder / f"apicurio-registry-app-{VERSION}-runner.jar")]
    with tempfile.TemporaryFile() as log:
        process = subprocess.Popen(command, stdout=log, stderr=log, cwd=folder)
        try:
            _await_answer(url, process, log)
            yield url
        finally:
            process.terminate()
            process.wait(30)


def _await_answer(url: str, process: subprocess.Popen[bytes], log: object) -> None:
    deadline = time.monotonic() + START_SECONDS
    while time.monotonic() < deadline and process.poll() is None:
        with suppress(urllib.error.URLError, ConnectionError):
            urllib.request.urlopen(f"{url}/subjects", timeout=5).close()
            return
        time.sleep(0.2)
    log.seek(0)  # type: ignore[attr-defined]
    told = log.read().decode("utf-8", "replace").splitlines()[-LINES_TOLD:]  # type: ignore[attr-defined]
    pytest.fail("Apicurio Registry did not start:\n" + "\n".join(told), pytrace=False)


@functools.cache
def _fetched() -> tuple[Path, str | None]:
    """The folder, and why it is not there."""
    folder = CACHE / VERSION
    for tool in ("java", "mvn"):
        if shutil.which(tool) is None:
            return folder, f"Apicurio Registry needs {tool}, and there is none on PATH"
    CACHE.mkdir(parents=True, exist_ok=True)
    with (CACHE / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # another process may be fetching it
        if folder.is_dir():
            return folder, None
        with tempfile.TemporaryDirectory(dir=CACHE) as scratch:
            complete = Path(scratch, "app")
            command = ["mvn", "--quiet", "--batch-mode", UNPACK, f"-Dartifact={ARTIFACT}"]
            command += [f"-DoutputDirectory={complete}"]
            try:
                ran = subprocess.run(
                    command,
                    cwd=scratch,  # Maven notes there what it has unpacked
                    capture_output=True,
                    text=True,
                    timeout=FETCH_SECONDS,
                    check=False,
                )
            except subprocess.TimeoutExpired:
                return folder, f"Maven did not bring Apicurio Registry within {FETCH_SECONDS} s"
            if ran.returncode != 0:
                told = "\n".join((ran.stdout + ran.stderr).splitlines()[:LINES_TOLD])
                return folder, f"Maven could not bring Apicurio Registry {VERSION}:\n{told}"
            complete.rename(folder)
    return folder, None
