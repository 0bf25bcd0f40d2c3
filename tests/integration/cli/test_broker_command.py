"""``kprod broker`` as a process."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest
from typer.testing import CliRunner

from kprod import KafkaProducer
from kprod.admin import end_offsets, read_topic
from kprod.cli.app import app
from tests.integration.cli.processes import Family, family
from tests.support.tier import one_of


def address(broker: Family) -> str:
    assert broker.command.stdout is not None
    first = broker.command.stdout.readline()
    assert first.startswith("listening on 127.0.0.1:")
    return first.split()[-1]


@pytest.mark.parametrize("number", one_of(signal.SIGTERM, signal.SIGINT))
def test_it_listens_and_stops_cleanly(number: signal.Signals) -> None:
    with family("broker", "--port", "0", "--topic", "flights:6", "--topic", "one") as broker:
        where = address(broker)
        assert sorted(end_offsets(where, "flights")) == list(range(6))
        assert sorted(end_offsets(where, "one")) == [0]
        broker.command.send_signal(number)
        assert broker.command.wait(30) == 0


@pytest.mark.full
def test_its_data_outlive_it(tmp_path: Path) -> None:
    arguments = ("broker", "--port", "0", "--data-dir", str(tmp_path), "--topic", "t:1")
    with family(*arguments) as broker, KafkaProducer(bootstrap_servers=address(broker)) as producer:
        producer.send("t", b"kept").get(timeout=30)
        broker.command.terminate()
        broker.command.wait(30)
    with family(*arguments) as broker:
        assert [record.value for _p, record in read_topic(address(broker), "t")] == [b"kept"]


def test_it_ends_with_its_parent_when_asked_to() -> None:
    with family("broker", "--port", "0", "--until-stdin-closes") as broker:
        address(broker)
        assert broker.command.stdin is not None
        broker.command.stdin.close()
        assert broker.command.wait(30) == 0


@pytest.mark.parametrize("spec", ["flights:", "flights:0", "flights:six", ":6"])
def test_a_topic_that_makes_no_sense_is_refused(spec: str) -> None:
    ran = CliRunner().invoke(app, ["broker", "--port", "0", "--topic", spec])
    assert ran.exit_code == 2
    assert "NAME:PARTITIONS" in ran.output


@pytest.mark.full
def test_a_host_that_others_can_reach_must_be_meant() -> None:
    with family("broker", "--port", "0", "--host", "0.0.0.0") as broker:
        _out, err = broker.command.communicate(timeout=300)
    assert broker.command.returncode == 1
    assert "kprod broker: host '0.0.0.0' accepts other machines" in err
    assert "--allow-remote" in err


@pytest.mark.full
def test_it_runs_several_nodes() -> None:
    with family("broker", "--port", "0", "--nodes", "3", "--topic", "t:3") as broker:
        assert broker.command.stdout is not None
        first = broker.command.stdout.readline()
        assert first.count("127.0.0.1:") == 3
        assert sorted(end_offsets(first.split()[-1].split(",")[2], "t")) == [0, 1, 2]
        broker.command.terminate()
        assert broker.command.wait(30) == 0
