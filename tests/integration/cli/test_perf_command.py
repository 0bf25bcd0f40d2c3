"""``kprod perf``: figures cover delivered records, options and interruptions."""

from __future__ import annotations

import json
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import fields, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, get_args

import pytest
from typer.testing import CliRunner, Result

import kprod
from kprod.admin import end_offsets, read_topic
from kprod.cli.app import app
from kprod.cli.perf import command
from kprod.cli.perf.command import CallName
from kprod.cli.perf.measurement import Measured
from kprod.cli.perf.workload import CALLS
from tests.integration.cli.processes import process_tree
from tests.support.waiting import await_true

BROKER = {"default_partitions": 3}


def perf(*arguments: str) -> Result:
    return CliRunner().invoke(app, ["perf", *arguments])


@pytest.mark.parametrize("call", list(CALLS))
@pytest.mark.parametrize("keys", ["0", "7"])
def test_the_figures_match_the_stored_records(servers: str, call: str, keys: str) -> None:
    topic = f"{call}-{keys}"
    arguments = ["--bootstrap-servers", servers, "--topic", topic, "--call", call, "--json"]
    ran = perf(*arguments, "--records", "1003", "--warm-up", "50", "--keys", keys, "--size", "9")
    assert ran.exit_code == 0, ran.output
    figures = json.loads(ran.stdout)
    assert (figures["records"], figures["failed"], figures["pending"]) == (1003, 0, 0)
    assert figures["payload_bytes"] == 1003 * 9
    assert figures["interrupted"] is False
    assert figures["latency_samples"] > 0
    stored = [record for _partition, record in read_topic(servers, topic)]
    assert len(stored) == 1003 + 50
    assert {len(record.value or b"") for record in stored} == {9}
    assert len({record.key for record in stored}) == max(1, int(keys))


def test_the_command_line_overrides_the_config_file(servers: str, tmp_path: Path) -> None:
    file = tmp_path / "client.properties"
    file.write_text("acks=1\ncompression.type=gzip\n")
    arguments = ["--bootstrap-servers", servers, "--records", "1", "--warm-up", "0", "--json"]
    ran = perf(*arguments, "--config", str(file), "--compression", "none")
    assert ran.exit_code == 0, ran.output
    assert "acks=1, not idempotent," in json.loads(ran.stdout)["options"]
    assert "compression=none" in json.loads(ran.stdout)["options"]


def test_every_call_can_be_chosen_on_the_command_line() -> None:
    assert get_args(CallName) == tuple(CALLS)


@pytest.mark.full
def test_the_table_shows_limit_versions_and_options() -> None:
    options = ("--partitions", "2", "--compression", "lz4", "--acks", "1", "-X", "linger_ms=3")
    ran = perf("--records", "300", *options)
    assert ran.exit_code == 0, ran.output
    shown = " ".join(ran.stdout.split())
    for word in ("limited by", f"{kprod.__version__} ", "send, acks=1", "linger_ms=3", "Python"):
        assert word in shown


NUMBERS: dict[str, Any] = dict.fromkeys((each.name for each in fields(Measured)), 0)
NUMBERS |= {"records": 1_000, "seconds": 10.0, "cpu_seconds": 1.0, "cores": 2}
MEASURED = Measured(**{**NUMBERS, "rate": None, "broker_cpu_seconds": None})


@pytest.mark.parametrize(
    ("changed", "limit"),
    [
        ({"rate": 100.0}, "the requested rate"),
        ({"rate": 1000.0}, "waiting"),
        ({"broker_cpu_seconds": 9.5}, "the embedded broker"),
        ({"broker_cpu_seconds": 8.5, "cpu_seconds": 9.8}, "2 cores"),
        ({"broker_cpu_seconds": 4.0, "cpu_seconds": 9.8}, "one core"),
        ({"cpu_seconds": 9.8}, "one core"),
        ({"seconds": 0.0, "cpu_seconds": 0.0}, "waiting"),
    ],
)
def test_limited_by_names_the_exhausted_resource(changed: dict[str, Any], limit: str) -> None:
    assert limit in replace(MEASURED, **changed).limited_by


def test_lines_of_a_file_are_sent_cyclically(servers: str, tmp_path: Path) -> None:
    file = tmp_path / "lines"
    file.write_text("one\ntwo\n")
    arguments = ["--payload-file", str(file), "--records", "3", "--warm-up", "0"]
    ran = perf("--bootstrap-servers", servers, "--topic", "lines", *arguments)
    assert ran.exit_code == 0, ran.output
    stored = sorted(record.value or b"" for _partition, record in read_topic(servers, "lines"))
    assert stored == [b"one", b"one", b"two"]


def test_ctrl_c_during_the_shutdown_of_the_broker_keeps_the_figures(
    servers: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    @contextmanager
    def stopping_slowly(_topic: str, _partitions: int) -> Iterator[SimpleNamespace]:
        yield SimpleNamespace(address=lambda: servers, cpu_seconds=lambda: 0.0)
        signal.raise_signal(signal.SIGINT)

    monkeypatch.setattr(command, "embedded_broker", stopping_slowly)
    ran = perf("--records", "10", "--warm-up", "0", "--json")
    assert ran.exit_code == 130
    assert json.loads(ran.stdout)["records"] == 10


@pytest.mark.full
def test_ctrl_c_prints_the_figures_so_far(servers: str) -> None:
    arguments = ("--bootstrap-servers", servers, "--topic", "stopped", "--warm-up", "0")
    with process_tree("perf", *arguments, "--rate", "500", "--json") as process:
        await_true(lambda: sum(end_offsets(servers, "stopped").values()) > 10)
        process.command.send_signal(signal.SIGINT)
        out, err = process.command.communicate(timeout=300)
    assert process.command.returncode == 130, err
    figures = json.loads(out)
    assert figures["interrupted"] is True
    assert figures["records"] == sum(end_offsets(servers, "stopped").values())
