"""Hosts that brokers name as parts of a path: they stay in the folder that the option names."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from kprod.errors import ConnectionLost
from kprod.transport.tcp import UnixBackend


@pytest.fixture
def backend(tmp_path: Path) -> Iterator[UnixBackend]:
    (tmp_path / "in").mkdir()
    made = UnixBackend(str(tmp_path / "in" / "{host}" / "socket"))
    yield made
    made.close()


@pytest.mark.parametrize("host", ["../in", "..", ".", "", "/", "broker/..", "a\0b", "a/b"])
def test_a_host_that_leads_elsewhere_is_not_connected_to(
    host: str, backend: UnixBackend, tmp_path: Path
) -> None:
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(tmp_path / "socket"))
        listener.listen()
        with pytest.raises(ConnectionLost, match="does not fit into the path"):
            backend.dial(host, 9092)


@pytest.mark.parametrize("host", ["broker-1", "...", "..a", "10.0.0.1", "::1"])
def test_a_host_that_is_a_name(host: str, backend: UnixBackend, tmp_path: Path) -> None:
    (tmp_path / "in" / host).mkdir()
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(tmp_path / "in" / host / "socket"))
        listener.listen()
        assert backend.dial(host, 9092).advance()


def test_a_path_without_the_host_is_the_same_for_all(tmp_path: Path) -> None:
    path = tmp_path / "socket"
    backend = UnixBackend(str(path))
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(path))
        listener.listen()
        assert backend.dial("../any", 1).advance()
    backend.close()
