"""The command as a whole: how it starts, and what it says when it cannot."""

from __future__ import annotations

import subprocess
import sys

import pytest
from typer.testing import CliRunner

from kprod.cli import main
from kprod.cli.app import app


@pytest.mark.parametrize("command", ["broker", "demo", "produce"])
def test_every_command_explains_itself(command: str) -> None:
    ran = CliRunner().invoke(app, [command, "--help"])
    assert ran.exit_code == 0
    assert f"kprod {command}" in ran.output or "Usage" in ran.output


def test_without_typer_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "typer", None)
    with pytest.raises(SystemExit, match=r"needs typer: pip install 'kprod\[cli\]'"):
        main()


def test_help_loads_neither_spark_nor_the_engine() -> None:
    script = (
        "import sys; sys.argv = ['kprod', 'demo', '--help']\n"
        "from kprod.cli import main\n"
        "try: main()\n"
        "except SystemExit: pass\n"
        "print([m for m in ('pyspark', 'pyarrow', 'kio') if m in sys.modules])"
    )
    ran = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert ran.stdout.splitlines()[-1] == "[]"
