"""``kprod demo``: complete and interrupted runs."""

from __future__ import annotations

import re
import signal
import subprocess
from pathlib import Path

import pytest
from typer.testing import CliRunner

from kprod import KafkaProducer
from kprod.admin import end_offsets
from kprod.broker import EmbeddedBroker
from kprod.cli.app import app
from tests.integration.cli.processes import process_tree
from tests.support.programs import run_python
from tests.support.waiting import await_true

BROKER = {"topics": {"flights": 3}}


def demo(*arguments: str) -> subprocess.CompletedProcess[str]:
    return run_python("-m", "kprod", "demo", *arguments)


def counts(output: str) -> dict[str, str]:
    lines = (line.rsplit(maxsplit=1) for line in output.splitlines() if line)
    return {line[0].strip(): line[1] for line in lines if len(line) == 2}


def test_the_demo_without_spark_is_exact() -> None:
    ran = demo("--no-spark", "--records", "2000")
    found = counts(ran.stdout)
    assert found["records in"] == found["acknowledged"] == found["read back"] == "2,000"
    assert {found[name] for name in ("missing", "duplicated", "altered")} == {"0"}
    assert found["out of order per key"] == "0"
    assert sum(int(found[f"in partition {p}"].replace(",", "")) for p in range(6)) == 2_000
    assert ran.stdout.splitlines()[-1].startswith("Exact")
    assert "one thread, in which Python makes the JSON of every flight; acks=all" in ran.stdout
    assert "It went to an embedded broker: Python" in ran.stdout
    assert "\x1b" not in ran.stdout, "no colours or progress bars without a terminal"


@pytest.mark.full
def test_the_demo_with_spark_is_exact_and_clean() -> None:
    with process_tree("demo", "--records", "3000") as process:
        out, err = process.command.communicate(timeout=300)
        assert process.command.returncode == 0, out + err
        assert process.pids() == []
    assert counts(out)["read back"] == "3,000"
    assert err == "", "Spark's log output is suppressed"


@pytest.mark.full
def test_records_that_were_in_the_topic_before_do_not_count(broker: EmbeddedBroker) -> None:
    bootstrap = broker.bootstrap_servers
    with KafkaProducer(bootstrap_servers=bootstrap) as producer:
        for partition in range(3):
            producer.send("flights", b"from before", partition=partition)
    ran = demo("--no-spark", "--records", "500", "--bootstrap-servers", bootstrap)
    assert counts(ran.stdout)["read back"] == "500"
    assert sum(end_offsets(bootstrap, "flights").values()) == 503


def test_without_java_the_error_suggests_no_spark(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JAVA_HOME", "/missing")
    ran = CliRunner().invoke(app, ["demo"])
    assert ran.exit_code == 1
    assert "kprod demo --no-spark" in ran.stderr


@pytest.mark.full
def test_keep_leaves_the_broker_running(tmp_path: Path) -> None:
    arguments = ("demo", "--no-spark", "--records", "100", "--keep", "--data-dir", str(tmp_path))
    with process_tree(*arguments) as process:
        out, err = process.command.communicate(timeout=300)
        assert process.command.returncode == 0, err
        assert str(tmp_path) in out
        (broker,) = process.pids()
        assert f"kill {broker}" in out
        address = next(word for word in out.split() if word.startswith("127.0.0.1:")).rstrip(",")
        assert sum(end_offsets(address, "flights").values()) == 100


def delivered(output: str) -> int:
    found = re.search(r"([\d,]+) of 336,776 flights were in the topic by then", output)
    assert found, output
    return int(found[1].replace(",", ""))


def interrupted(*arguments: str, number: signal.Signals, bootstrap: str | None) -> str:
    """The output of a demo that gets a signal while it writes. No process may remain."""
    with process_tree("demo", *arguments) as process:
        if bootstrap is None:
            process.stdout.readline()
        else:
            await_true(lambda: sum(end_offsets(bootstrap, "flights").values()) > 0, 120)
        process.command.send_signal(number)
        out, err = process.command.communicate(timeout=300)
        assert process.command.returncode == 128 + number, out + err
        assert process.pids() == []
    return out


@pytest.mark.full
@pytest.mark.parametrize("arguments", [["--no-spark"], []], ids=["no Spark", "Spark"])
def test_ctrl_c_prints_the_delivered_records(broker: EmbeddedBroker, arguments: list[str]) -> None:
    bootstrap = broker.bootstrap_servers
    where = ("--bootstrap-servers", bootstrap)
    out = interrupted(*arguments, *where, number=signal.SIGINT, bootstrap=bootstrap)
    assert 0 < delivered(out) <= sum(end_offsets(bootstrap, "flights").values())


@pytest.mark.full
def test_sigterm_stops_the_embedded_broker_too() -> None:
    interrupted("--no-spark", number=signal.SIGTERM, bootstrap=None)


@pytest.mark.full
def test_no_process_outlives_a_killed_demo() -> None:
    with process_tree("demo", "--no-spark") as process:
        process.stdout.readline()
        assert len(process.pids()) == 2, "the demo and its broker"
        process.command.kill()
        await_true(lambda: process.pids() == [])
