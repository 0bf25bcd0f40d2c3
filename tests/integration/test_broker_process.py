"""``python -m kprod.broker``: its first line, its signals, and why it cannot start."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from kprod.admin import end_offsets
from tests.support.tier import one_of


@contextmanager
def broker_process(*arguments: str) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """The process and its address, as its first line tells it."""
    command = [sys.executable, "-W", "error", "-m", "kprod.broker", "--port", "0", *arguments]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        try:
            assert process.stdout is not None
            first = process.stdout.readline()
            assert first.startswith("listening on 127.0.0.1:"), process.communicate(timeout=300)
            yield process, first.split()[-1]
        finally:
            process.kill()


@pytest.mark.parametrize("how", one_of(signal.SIGTERM, signal.SIGINT))
def test_a_signal_ends_it_cleanly(how: signal.Signals, tmp_path: Path) -> None:
    with broker_process("--data-dir", str(tmp_path), "--topic", "t:6", "--topic", "u") as (
        process,
        address,
    ):
        assert set(end_offsets(address, "t")) == set(range(6))
        assert set(end_offsets(address, "u")) == {0}
        process.send_signal(how)
        assert process.communicate(timeout=300) == ("", "")
        assert process.returncode == 0
    assert (tmp_path / ".kafka_cleanshutdown").exists()


@pytest.mark.full
def test_it_says_why_it_cannot_start(tmp_path: Path) -> None:
    with broker_process("--data-dir", str(tmp_path)) as (_, address):
        for arguments, reason in (
            (["--port", "0", "--data-dir", str(tmp_path)], "in use by another broker"),
            (["--port", address.rpartition(":")[2]], "in use"),
            (["--port", "0", "--host", "0.0.0.0"], "allow_remote"),
        ):
            command = [sys.executable, "-m", "kprod.broker", *arguments]
            failed = subprocess.run(
                command, capture_output=True, text=True, timeout=20, check=False
            )
            assert failed.returncode == 1
            assert failed.stderr.startswith("kprod broker: ")
            assert reason in failed.stderr.lower()
            assert "Traceback" not in failed.stderr
