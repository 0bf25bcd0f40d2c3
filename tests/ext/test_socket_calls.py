"""Bytes through a socket that does not block."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator

import pytest

from kprod_ext import receive, send_buffers

Pair = tuple[socket.socket, socket.socket]


@pytest.fixture
def pair() -> Iterator[Pair]:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        yield ours, theirs


def read_exactly(sock: socket.socket, size: int) -> bytes:
    found = bytearray()
    while len(found) < size:
        found += sock.recv(size - len(found))
    return bytes(found)


@pytest.mark.parametrize("count", [0, 1, 31, 32, 33, 1000])
def test_buffers_leave_in_order(pair: Pair, count: int) -> None:
    ours, theirs = pair
    pieces = [bytes([number % 251]) * (number % 3) for number in range(count)]
    buffers = [memoryview(piece) if number % 2 else piece for number, piece in enumerate(pieces)]
    whole = b"".join(pieces)
    assert send_buffers(ours.fileno(), buffers) == len(whole)
    assert read_exactly(theirs, len(whole)) == whole


def test_of_too_many_buffers_the_first_are_sent(pair: Pair) -> None:
    most = os.sysconf("SC_IOV_MAX")
    assert send_buffers(pair[0].fileno(), [b"x"] * (most + 5)) == most


def test_no_view_is_kept(pair: Pair) -> None:
    ours, theirs = pair
    data = bytearray(b"some bytes")
    assert send_buffers(ours.fileno(), [memoryview(data)]) == 10
    data.clear()  # refused while a view of it lives
    theirs.close()
    data += bytes(10)
    with pytest.raises(BrokenPipeError):
        send_buffers(ours.fileno(), (memoryview(data), memoryview(data)))
    data.clear()


@pytest.mark.parametrize("wrong", [[1], ["text"], [b"x", None]])
def test_what_is_no_buffer_is_refused_and_nothing_sent(pair: Pair, wrong: list[bytes]) -> None:
    with pytest.raises(TypeError):
        send_buffers(pair[0].fileno(), wrong)
    assert receive(pair[1].fileno(), 10) is None


def test_what_the_system_refuses_is_an_error(pair: Pair) -> None:
    number = pair[0].fileno()
    pair[0].close()
    with pytest.raises(OSError, match="descriptor"):
        receive(number, 10)
    with pytest.raises(OSError, match="descriptor"):
        send_buffers(number, [b"x"])
