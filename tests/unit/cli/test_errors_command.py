"""``kprod errors`` prints error pages, also without the extra for the command line."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from kprod.cli.app import app
from kprod.errors import BufferFullError, KprodTimeoutError


@pytest.mark.parametrize("name", ["kp-1302", "1302", "BufferFullError"])
def test_an_error_page_is_found_by_number_and_by_name(name: str) -> None:
    ran = CliRunner().invoke(app, ["errors", name])
    assert ran.exit_code == 0
    first, *lines = ran.stdout.splitlines()
    assert first == f"# {BufferFullError.number}: BufferFullError"
    assert "**What to do**" in lines
    assert f"A KprodTimeoutError ({KprodTimeoutError.number})." in ran.stdout, "without its link"


def test_without_an_argument_all_errors_are_listed() -> None:
    ran = CliRunner().invoke(app, ["errors"])
    assert "KP-1000: KprodError" in ran.stdout.splitlines()
    assert len(ran.stdout.splitlines()) > 40


WITHOUT_TYPER = "import sys; sys.modules['typer'] = None; from kprod.cli import main; main()"


@pytest.mark.parametrize(("name", "code"), [("1302", 0), ("KP-9999", 1)])
def test_the_command_works_without_the_extra(name: str, code: int, tmp_path: Path) -> None:
    ran = subprocess.run(
        [sys.executable, "-c", WITHOUT_TYPER, "errors", name],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert ran.returncode == code
    printed = ran.stdout if code == 0 else ran.stderr
    assert name in printed
    assert "pip install" not in printed
