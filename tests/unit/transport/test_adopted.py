"""A socket that somebody else has connected, and whose peer is gone before it is used."""

from __future__ import annotations

import socket

import pytest

from kprod.errors import ConnectionLost
from kprod.transport.tcp_transport import TcpTransport
from kprod_ext import Poller
from tests.unit.transport.networks import RESET_ON_CLOSE


def connected() -> tuple[socket.socket, socket.socket]:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        ours = socket.create_connection(listener.getsockname())
        peer, _ = listener.accept()
    return ours, peer


def test_one_whose_peer_has_reset_it() -> None:
    ours, peer = connected()
    peer.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET_ON_CLOSE)
    peer.close()
    with pytest.raises(ConnectionResetError):
        ours.recv(1)  # waits until it is known here
    poller = Poller()
    transport = TcpTransport("host:9092", None, [], poller)
    assert not transport.adopt(ours)
    assert ours.fileno() == -1
    with pytest.raises(ConnectionLost, match="host:9092 broke at once"):
        transport.advance()
    transport.close()
    poller.close()


def test_one_that_is_good() -> None:
    ours, peer = connected()
    ours.setblocking(False)
    poller = Poller()
    transport = TcpTransport("host:9092", None, [], poller)
    assert transport.adopt(ours)
    assert transport.advance()
    assert transport.send([b"x"]) == 1
    assert peer.recv(1) == b"x"
    transport.close()
    poller.close()
    peer.close()
