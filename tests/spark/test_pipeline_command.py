"""The command ``kprod pipeline``, with the examples of its documentation."""

from __future__ import annotations

import json
import os
import re
import shlex
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import typer

from kprod.admin import read_topic
from kprod.cli.pipeline_command import read_job, writer_options
from tests.spark.conftest import SHORT_LIVED
from tests.support.console_blocks import CLI_BLOCKS, CLI_PAGE, commands, kprod_command, pattern
from tests.support.programs import run_python
from tests.support.steady_names import steady_repr

pytestmark = [pytest.mark.full, pytest.mark.timeout(600)]

(JOB,) = re.findall(r"^```toml\n(.*?)^```$", CLI_PAGE, re.MULTILINE | re.DOTALL)
(BLOCK,) = [block for block in CLI_BLOCKS if kprod_command(block) == "pipeline"]
FLIGHTS = "origin,tailnum\nJFK,N1\nEWR,N2\nJFK,N3\n"


def started(command: list[str], folder: Path) -> subprocess.Popen[str]:
    conf = ["--spark-conf", f"spark.driver.extraJavaOptions={SHORT_LIVED}"]
    return subprocess.Popen(
        [sys.executable, "-m", "kprod", *command, *conf],
        cwd=folder,
        env=os.environ | {"SPARK_LOCAL_IP": "127.0.0.1"},
        stderr=subprocess.PIPE,
        text=True,
    )


def run(command: list[str], folder: Path) -> tuple[int, str]:
    with started(command, folder) as running:
        stderr = running.communicate()[1]
    return running.returncode, stderr


def test_the_job_file_in_the_documentation_runs(tmp_path: Path, kafka: str) -> None:
    (tmp_path / "flights.csv").write_text(FLIGHTS)
    (tmp_path / "job.toml").write_text(JOB.replace("localhost:9092", kafka))
    extra = ["--topic", "of-file", "-X", "compression.type=lz4"]  # over [kafka] compression_type
    code, stderr = run(["pipeline", "job.toml", "--report", "report.json", *extra], tmp_path)
    assert code == 0, stderr
    written = sorted((record.key, record.value) for _, record in read_topic(kafka, "of-file"))
    assert written == [
        (plane, b'{"origin":"JFK","tailnum":"%s"}' % plane) for plane in (b"N1", b"N3")
    ]
    assert "of-file: 2 records" in stderr
    assert json.loads((tmp_path / "report.json").read_text())["records"] == 2


def test_the_documented_command_prints_the_documented_output(tmp_path: Path, kafka: str) -> None:
    (tmp_path / "flights.csv").write_text(FLIGHTS)
    ((command, printed),) = commands(BLOCK)
    code, stderr = run(shlex.split(command.replace("localhost:9092", kafka))[1:], tmp_path)
    assert code == 0, stderr
    last = "\n".join(stderr.splitlines()[-len(printed.splitlines()) :])
    assert pattern(printed.replace("shards", "shard")).fullmatch(last), stderr


def test_an_invalid_row_fails_the_job_or_is_counted(tmp_path: Path, kafka: str) -> None:
    rows = "select 'v' value, if(id = 3, -1, 0) partition from range(10)"
    given = ["pipeline", "--bootstrap-servers", kafka, "--topic", "some", "--query", rows]
    code, stderr = run(given, tmp_path)
    assert code == 1, stderr
    assert "kprod pipeline: " in stderr
    assert "partition" in stderr
    assert "Traceback" not in stderr
    given += ["--option", "on_row_error=skip", "--report", "report.json"]
    code, stderr = run(given, tmp_path)
    assert code == 3, stderr
    assert json.loads((tmp_path / "report.json").read_text())["skipped"] == 1


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT], ids=lambda each: each.name)
def test_a_stream_stopped_by_a_signal_reports_it(
    tmp_path: Path, kafka: str, number: signal.Signals
) -> None:
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "1.txt").write_text("first\n")
    given = ["pipeline", "--bootstrap-servers", kafka, "--topic", f"stopped-{number.name}"]
    given += ["--read", "in", "--format", "text", "--stream", "--trigger", "1 second"]
    with started([*given, "--checkpoint", str(tmp_path / "checkpoint")], tmp_path) as running:
        assert running.stderr is not None
        for line in running.stderr:
            if "micro-batch 0" in line:
                break
        running.send_signal(number)
        stderr = running.stderr.read()
    assert running.returncode == 128 + number, stderr
    assert f"stopped by {number.name}" in stderr


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("[read", "job.toml"),
        ("[read]\ncolour = 1", "has no 'colour'; it has"),
        ("[raed]", "no table .'raed'.; did you mean 'read'"),
        ("[read]\nformt = 1", "has no 'formt'; did you mean 'format'"),
    ],
    ids=steady_repr,
)
def test_invalid_job_files_are_refused(tmp_path: Path, text: str, complaint: str) -> None:
    (tmp_path / "job.toml").write_text(text)
    with pytest.raises(typer.BadParameter, match=complaint):
        read_job(tmp_path / "job.toml")


def test_bootstrap_servers_may_be_a_producer_option(tmp_path: Path) -> None:
    job = tmp_path / "job.toml"
    job.write_text('[kafka]\n"bootstrap.servers" = "a:1"\n"linger.ms" = 5\n')
    assert read_job(job) == {"bootstrap_servers": "a:1", "options": {"linger.ms": 5}}
    job.write_text('[write]\nbootstrap_servers = "b:1"\n[kafka]\n"bootstrap.servers" = "a:1"\n')
    assert read_job(job) == {"bootstrap_servers": "b:1", "options": {}}


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("job_id=20261124", "20261124"),
        ("subject=true", "true"),
        ("timeout=12.5", 12.5),
        ("max.records.per.second=0.5", 0.5),
        ("max_row_errors=7", 7),
        ("shards=few", "few"),
        ("progress=false", False),
        ("linger.ms=5", 5),
        ("client_id=7", "7"),
    ],
)
def test_options_are_converted_to_their_types(text: str, value: Any) -> None:
    ((_, found),) = writer_options([text]).items()
    assert (type(found), found) == (type(value), value)


def test_misuse_is_reported_before_spark_starts() -> None:
    for given, complaint in (
        (["--read", "x", "--topic", "t"], "--bootstrap-servers is missing"),
        (["--bootstrap-servers", "b:1", "--topic", "t"], "read one of path, table and query"),
        (["--report", "missing/report.json"], "--report: there is no folder missing"),
    ):
        environment = os.environ | {"COLUMNS": "200", "NO_COLOR": "1"}
        ran = run_python("-m", "kprod", "pipeline", *given, check=False, env=environment)
        assert ran.returncode == 2
        assert complaint in ran.stderr
