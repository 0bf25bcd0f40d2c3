"""Checks servers that load an application and fork workers: each answer must be correct."""

from __future__ import annotations

import http.client
import os
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from kprod.broker import EmbeddedBroker
from tests.support.committed_records import read_back
from tests.support.ports import await_listener, free_port
from tests.support.programs import ROOT, run_python

PROGRAM = "tests.support.forked_server"
SECONDS = 60
CLIENTS = 4


def check_pool(method: str, requests: int) -> None:
    """Check a pool of multiprocessing with this start method."""
    with EmbeddedBroker(topics={"answers": 1}) as broker:
        command = "-W", "ignore", "-m", PROGRAM, method, str(requests)
        ran = run_python(*command, env=_environment(broker), seconds=10 * SECONDS)
        _check(broker, ran.stdout.splitlines(), requests)


def check_server(command: Sequence[str], requests: int, log: Path) -> None:
    """Check a web server: ``command`` with "{address}" replaced. It must end at SIGTERM."""
    port = free_port()
    with EmbeddedBroker(topics={"answers": 1}) as broker, log.open("wb") as output:
        server = subprocess.Popen(
            [part.format(address=f"127.0.0.1:{port}") for part in command],
            cwd=ROOT,
            env=_environment(broker),
            stdout=output,
            stderr=output,
        )
        try:
            await_listener(port, SECONDS)
            with ThreadPoolExecutor(CLIENTS) as clients:
                answers = list(clients.map(lambda n: _answer(port, n), range(requests)))
            # The first worker may have answered all of them before the second one was ready.
            deadline = time.monotonic() + SECONDS
            while len(_processes(answers)) < 2 and time.monotonic() < deadline:
                answers.append(_answer(port, len(answers)))
            server.send_signal(signal.SIGTERM)
            server.wait(SECONDS)
        except BaseException as error:
            error.add_note(log.read_text())
            raise
        finally:
            server.kill()
            server.wait()
        _check(broker, answers, len(answers))


def _environment(broker: EmbeddedBroker) -> dict[str, str]:
    path = os.pathsep.join([str(ROOT), *filter(None, sys.path)])
    return {**os.environ, "KPROD_BROKER": broker.bootstrap_servers, "PYTHONPATH": path}


def _answer(port: int, number: int) -> str:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=SECONDS)
    try:
        connection.request("GET", f"/request-{number}")
        response = connection.getresponse()
        body = response.read().decode()
        assert response.status == 200, body
        return body
    finally:
        connection.close()


def _processes(answers: list[str]) -> set[str]:
    return {answer.split()[0] for answer in answers}


def _check(broker: EmbeddedBroker, answers: list[str], requests: int) -> None:
    """Each request was answered once, by several workers, with the offset of its record.

    The log may also have one record from loading the application, for each process.
    """
    fields = [answer.split() for answer in answers]
    stored = {
        record.offset: record.value for record in read_back(broker.bootstrap_servers, "answers", 1)
    }
    assert len(_processes(answers)) > 1
    assert sorted(name for _, name, _ in fields) == sorted(f"request-{n}" for n in range(requests))
    assert {int(offset): name.encode() for _, name, offset in fields} == {
        offset: value for offset, value in stored.items() if value != b"loaded"
    }
