"""Apicurio Registry: downloaded by Maven once, run from ``build/``."""

from __future__ import annotations

import subprocess
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import IO

import pytest

from tests.support.maven import BUILD, fetched, skip
from tests.support.ports import free_port

VERSION = "2.6.13.Final"
UNPACK = "org.apache.maven.plugins:maven-dependency-plugin:3.8.1"
START_SECONDS = 120
LOG_LINES = 20


@contextmanager
def running() -> Iterator[str]:
    """The address of an empty registry; skips the test without Java or Maven, fails it in CI."""
    folder = BUILD / "apicurio" / VERSION
    goal = f"{UNPACK}:unpack", f"-Dartifact=io.apicurio:apicurio-registry-app:{VERSION}:tar.gz:all"
    if why_not := fetched(folder, f"Apicurio Registry {VERSION}", *goal):
        skip(why_not)
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


def _await_answer(url: str, process: subprocess.Popen[bytes], log: IO[bytes]) -> None:
    deadline = time.monotonic() + START_SECONDS
    while time.monotonic() < deadline and process.poll() is None:
        with suppress(urllib.error.URLError, ConnectionError):
            urllib.request.urlopen(f"{url}/subjects", timeout=5).close()
            return
        time.sleep(0.2)
    log.seek(0)
    printed = log.read().decode("utf-8", "replace").splitlines()[-LOG_LINES:]
    pytest.fail("Apicurio Registry did not start:\n" + "\n".join(printed), pytrace=False)
