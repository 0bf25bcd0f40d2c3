"""A test that hangs fails alone; tests that share a fixture run in one worker (pytest-xdist)."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.full

ROOT = Path(__file__).parents[2]

HANGING = """
import os
import signal
import threading
import pytest

@pytest.mark.timeout(1)
def test_hangs() -> None:
    held = threading.Lock()
    held.acquire()
    held.acquire()

def test_comes_later() -> None:
    pass

def test_ctrl_c_is_not_ignored() -> None:
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
"""


SHARING = """
import os
import pytest

@pytest.fixture(scope="module", params=["a", "b"])
def shared(request):
    with open(os.path.join(os.path.dirname(__file__), "made"), "a") as made:
        made.write(request.param)

@pytest.mark.parametrize("number", range(4))
def test_shares(shared, number: int) -> None:
    pass
"""

CONFTEST = """
from tests.conftest import pytest_configure
pytest_plugins = ["tests.support.worker_shares", "tests.support.worker_stacks"]
"""


def test_the_run_goes_on_after_a_test_that_hangs(tmp_path: Path) -> None:
    (tmp_path / "test_hanging.py").write_text(HANGING)
    (tmp_path / "test_sharing.py").write_text(SHARING)
    (tmp_path / "conftest.py").write_text(CONFTEST)
    command = [sys.executable, "-m", "pytest", "-c", str(ROOT / "pyproject.toml"), "-n", "2"]
    command += ["-p", "xdist", "-p", "pytest_timeout", "-p", "no:cacheprovider"]
    command += ["--rootdir", str(tmp_path), str(tmp_path)]
    ran = subprocess.run(
        ["sh", "-c", "trap '' INT; exec \"$@\"", "sh", *command],
        cwd=ROOT,
        env=os.environ | {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"},  # four processes start
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )
    assert "1 failed, 10 passed" in ran.stdout, ran.stdout + ran.stderr
    assert "crashed while running" in ran.stdout
    assert 'test_hanging.py", line 11 in test_hangs' in ran.stdout  # where it hung
    assert sorted((tmp_path / "made").read_text()) == ["a", "b"]
