"""``kprod broker`` and ``python -m kprod.broker`` as processes."""

from __future__ import annotations

import resource
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from kprod.admin import end_offsets
from tests.integration.cli.processes import ProcessTree, ignored_interrupts, process_tree
from tests.support.programs import run_python
from tests.support.tier import one_of

COMMANDS = {"kprod": ("broker",), "kprod.broker": ()}


def address(broker: ProcessTree) -> str:
    """The address in its first line of output."""
    first = broker.stdout.readline()
    assert first.startswith("listening on 127.0.0.1:")
    return first.split()[-1]


@pytest.fixture
def low_file_limit() -> Iterator[None]:
    """Started commands inherit a low soft limit of open files."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard // 2, hard))
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


@pytest.mark.usefixtures("low_file_limit")
@pytest.mark.parametrize("module", COMMANDS)
@pytest.mark.parametrize("number", one_of(signal.SIGTERM, signal.SIGINT))
def test_it_listens_and_stops_cleanly(module: str, number: signal.Signals, tmp_path: Path) -> None:
    arguments = (*COMMANDS[module], "--port", "0", "--data-dir", str(tmp_path))
    with process_tree(
        *arguments, "--topic", "flights:6", "--topic", "one", module=module
    ) as broker:
        where = address(broker)
        soft, hard = resource.prlimit(broker.command.pid, resource.RLIMIT_NOFILE)
        assert soft == hard, "segments and clients need many files"
        assert sorted(end_offsets(where, "flights")) == list(range(6))
        assert sorted(end_offsets(where, "one")) == [0]
        broker.command.send_signal(number)
        assert broker.command.communicate(timeout=300) == ("", "")
        assert broker.command.returncode == 0
    assert (tmp_path / ".kafka_cleanshutdown").exists()


@pytest.mark.parametrize("module", COMMANDS)
def test_an_ignored_interrupt_stays_ignored(module: str) -> None:
    arguments = (*COMMANDS[module], "--port", "0", "--topic", "t:1")
    with ignored_interrupts(), process_tree(*arguments, module=module) as broker:
        where = address(broker)
        broker.command.send_signal(signal.SIGINT)
        assert end_offsets(where, "t") == {0: 0}
        broker.command.terminate()
        assert broker.command.wait(30) == 0


def test_until_stdin_closes_ends_the_broker() -> None:
    with process_tree("broker", "--port", "0", "--until-stdin-closes") as broker:
        address(broker)
        broker.stdin.close()
        assert broker.command.wait(30) == 0


@pytest.mark.full
def test_the_broker_runs_several_nodes() -> None:
    with process_tree("broker", "--port", "0", "--nodes", "3", "--topic", "t:3") as broker:
        nodes = address(broker).split(",")
        assert len(nodes) == 3
        assert sorted(end_offsets(nodes[2], "t")) == [0, 1, 2]
        broker.command.terminate()
        assert broker.command.wait(30) == 0


@pytest.mark.full
def test_start_failures_are_explained(tmp_path: Path) -> None:
    with process_tree("--port", "0", "--data-dir", str(tmp_path), module="kprod.broker") as broker:
        where = address(broker)
        for arguments, reason in (
            (["--port", "0", "--data-dir", str(tmp_path)], "in use by another broker"),
            (["--port", where.rpartition(":")[2]], "in use"),
            (["--port", "0", "--host", "0.0.0.0"], "allow_remote"),
        ):
            failed = run_python("-m", "kprod.broker", *arguments, check=False)
            assert failed.returncode == 1
            assert failed.stderr.startswith("kprod broker: ")
            assert reason in failed.stderr.lower()
            assert "Traceback" not in failed.stderr
