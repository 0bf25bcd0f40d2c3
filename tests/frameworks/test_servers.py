"""A thousand requests to each forking server, with a producer made before the fork."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.support.forking_servers import PROGRAM, check_pool, check_server

pytestmark = pytest.mark.timeout(900)
PROGRAMS = Path(os.environ["KPROD_FRAMEWORKS"]) / "servers" / "bin"
REQUESTS = 1000

GUNICORN = ["gunicorn", "--preload", "--workers=4", "--bind={address}", f"{PROGRAM}:application"]
UWSGI = ["uwsgi", "--http-socket={address}", f"--module={PROGRAM}", "--die-on-term", "--master"]
SERVERS = {
    "gunicorn": [*GUNICORN, "--worker-class=sync"],
    "gunicorn_threads": [*GUNICORN, "--worker-class=gthread", "--threads=4"],
    "uwsgi": [*UWSGI, "--processes=4"],
    "uwsgi_threads": [*UWSGI, "--processes=4", "--threads=4"],
    "uwsgi_cheaper": [*UWSGI, "--processes=4", "--cheaper=2", "--max-requests=150"],
    "uwsgi_hooks": [*UWSGI, "--processes=4", "--threads=4", "--py-call-uwsgi-fork-hooks"],
    "uwsgi_lazy": [*UWSGI, "--processes=4", "--lazy-apps"],
}


@pytest.mark.parametrize("server", SERVERS)
def test_forked_workers_of_a_server_produce(server: str, tmp_path: Path) -> None:
    program, *arguments = SERVERS[server]
    check_server([str(PROGRAMS / program), *arguments], REQUESTS, tmp_path / "log")


@pytest.mark.parametrize("method", ["fork", "forkserver", "spawn"])
def test_a_pool_of_processes(method: str) -> None:
    check_pool(method, REQUESTS)
