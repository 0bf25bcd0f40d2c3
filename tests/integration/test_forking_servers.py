"""gunicorn and multiprocessing with a producer made before the fork; `make frameworks` has more"""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from tests.support.forking_servers import PROGRAM, check_pool, check_server

REQUESTS = 60


@pytest.mark.parametrize("method", ["fork", "forkserver"])
def test_a_pool_of_processes(method: str) -> None:
    check_pool(method, REQUESTS)


@pytest.mark.parametrize("workers", [["sync"], ["gthread", "--threads=4"]])
def test_gunicorn(workers: list[str], tmp_path: Path) -> None:
    command = [sys.executable, "-W", "ignore", "-m", "gunicorn", "--preload", "--workers=2"]
    where = ["--bind={address}", "--worker-class", *workers, f"{PROGRAM}:application"]
    check_server([*command, *where], REQUESTS, tmp_path / "log")
