"""By which code ``kprod pipeline`` ends, each time with a Spark of its own.

``KPROD_CAMPAIGN=long``, as ``make campaign`` runs it.
"""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.spark.driver_process import OF_CAMPAIGNS

pytestmark = OF_CAMPAIGNS

LOCAL = ["--master", "local[2]", "--spark-conf", "spark.driver.bindAddress=127.0.0.1"]
ROWS = "select 'v' value, if(id = 3, -1, 0) partition from range(10)"


def command(kafka: str, *given: str) -> list[str]:
    started = [sys.executable, "-m", "kprod", "pipeline", *LOCAL]
    return [*started, "--bootstrap-servers", kafka, *given]


def ended(kafka: str, *given: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command(kafka, *given), capture_output=True, text=True, check=False)


def test_the_job_has_failed(kafka: str) -> None:
    ran = ended(kafka, "--topic", "failed", "--query", ROWS)
    assert ran.returncode == 1, ran.stderr
    assert "kprod pipeline: " in ran.stderr
    assert "partition" in ran.stderr
    assert "Traceback" not in ran.stderr


def test_rows_were_skipped(kafka: str, tmp_path: Path) -> None:
    report = tmp_path / "report.json"
    given = ["--topic", "some", "--query", ROWS, "--option", "on_row_error=skip"]
    ran = ended(kafka, *given, "--report", str(report))
    assert ran.returncode == 3, ran.stderr
    assert json.loads(report.read_text())["skipped"] == 1


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT], ids=lambda each: each.name)
def test_it_is_stopped(kafka: str, tmp_path: Path, number: signal.Signals) -> None:
    """A stream that would go on for ever ends, and says what stays."""
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "1.txt").write_text("first\n")
    given = ["--topic", f"stopped-{number.name}", "--read", str(tmp_path / "in"), "--stream"]
    given += ["--format", "text", "--trigger", "1 second"]
    given += ["--checkpoint", str(tmp_path / "checkpoint")]
    with subprocess.Popen(command(kafka, *given), stderr=subprocess.PIPE, text=True) as running:
        assert running.stderr is not None
        for line in running.stderr:
            if "micro-batch 0" in line:
                break
        running.send_signal(number)
        said = running.stderr.read()
    assert running.returncode == 128 + number, said
    assert f"stopped by {number.name}" in said
