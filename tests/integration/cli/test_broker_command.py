"""``kprod broker`` as a process."""

from __future__ import annotations

import signal

import pytest

from kprod.admin import end_offsets
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


def test_it_ends_with_its_parent_when_asked_to() -> None:
    with family("broker", "--port", "0", "--until-stdin-closes") as broker:
        address(broker)
        assert broker.command.stdin is not None
        broker.command.stdin.close()
        assert broker.command.wait(30) == 0


@pytest.mark.full
def test_it_runs_several_nodes() -> None:
    with family("broker", "--port", "0", "--nodes", "3", "--topic", "t:3") as broker:
        assert broker.command.stdout is not None
        first = broker.command.stdout.readline()
        assert first.count("127.0.0.1:") == 3
        assert sorted(end_offsets(first.split()[-1].split(",")[2], "t")) == [0, 1, 2]
        broker.command.terminate()
        assert broker.command.wait(30) == 0
