"""Spark drivers as separate processes, which can be killed."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, Any

import pyspark
import pytest

from kprod.admin import read_topic
from tests.support.ports import free_port

ROOT = Path(__file__).parents[2]
OF_CAMPAIGNS = pytest.mark.timeout(7_200)

SETTINGS = {
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
    "spark.driver.host": "127.0.0.1",
    "spark.executor.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
    "spark.executorEnv.PYTHONPATH": str(ROOT),
    "spark.log.level": "ERROR",
    "spark.sql.shuffle.partitions": "4",
    "spark.task.maxFailures": "8",
    "spark.ui.enabled": "false",
}


def program(
    code: str,
    *arguments: str,
    stderr: int | IO[str] = subprocess.PIPE,
    python: str | Path = sys.executable,
) -> subprocess.Popen[str]:
    """A program with its own Spark session.

    A pipe that is not read fills up with Spark's logs, and then blocks the program. Without
    ``finished``, use a file for ``stderr``.
    """
    environment = os.environ | {"PYSPARK_PYTHON": str(python), "PYTHONPATH": str(ROOT)}
    return subprocess.Popen(
        [python, "-c", code, *arguments],
        env=environment | {"SPARK_SCALA_VERSION": "2.13"},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=stderr,
        text=True,
        start_new_session=True,
    )


def finished(driver: subprocess.Popen[str]) -> dict[str, Any]:
    """The JSON in the last line that the driver printed."""
    out, err = driver.communicate(timeout=900)
    assert driver.returncode == 0, err[-4_000:]
    printed: dict[str, Any] = json.loads(out.splitlines()[-1])
    return printed


def values(servers: str, topic: str) -> Counter[bytes | None]:
    return Counter(record.value for _, record in read_topic(servers, topic))


def every_row(rows: int) -> Counter[bytes | None]:
    return Counter(b"row %d" % row for row in range(rows))


@contextmanager
def standalone(folder: Path) -> Iterator[str]:
    """A standalone master with two workers: its address.

    The workers have two host names: Spark starts no speculative copy of a task on its own host.
    """
    home = Path(pyspark.__file__).parent
    command = [str(home / "bin" / "spark-class"), "org.apache.spark.deploy"]
    port, pages = free_port(), free_port()
    environment = os.environ | {
        "SPARK_SCALA_VERSION": "2.13",
        "SPARK_DAEMON_MEMORY": "256m",
        "SPARK_WORKER_DIR": str(folder),
        "PYSPARK_PYTHON": sys.executable,
    }
    address = f"spark://127.0.0.1:{port}"
    running: list[subprocess.Popen[bytes]] = []

    def start(host: str, name: str, *arguments: str) -> None:
        with (folder / f"{name}-{len(running)}.log").open("w") as log:
            running.append(
                subprocess.Popen(
                    [command[0], f"{command[1]}.{name}", "--host", host, *arguments],
                    env=environment | {"SPARK_LOCAL_IP": host},
                    stdout=log,
                    stderr=log,
                    start_new_session=True,
                )
            )

    start("127.0.0.1", "master.Master", "--port", str(port), "--webui-port", str(pages))
    try:
        for host in ("127.0.0.1", "127.0.0.2"):
            start(host, "worker.Worker", "-c", "1", "-m", "1g", address)
        yield address
    finally:
        for one in running:
            with suppress(ProcessLookupError):
                os.killpg(one.pid, signal.SIGKILL)
            one.wait()
