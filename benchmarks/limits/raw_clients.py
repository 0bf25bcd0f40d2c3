"""The physical limits, in the place of a client: the same bytes without anything to make them."""

from __future__ import annotations

import socket
from collections.abc import Sequence
from itertools import cycle, islice
from typing import Any

from benchmarks.limits.raw_requests import raw_request
from benchmarks.rivals.client import Client
from benchmarks.rivals.settings import Settings

IN_FLIGHT = 5
"""Requests without an answer, as kprod has at most on a connection."""

LARGEST_ANSWER = 65536


class _Raw(Client):
    def prepare(self, values: Sequence[bytes], keys: Sequence[bytes] | None) -> None:
        """See Client. Requests that are all alike, and a last one with what is left.

        They lie in ``buffer_memory`` in turns, as a producer's do; None: all in the same place.
        """
        super().prepare(values, keys)
        assert keys is None, "the limits are measured without keys"
        batch_size = self.settings.batch_size
        whole = raw_request(values, batch_size)
        rounds, rest = divmod(len(values), whole.records)
        places = min(rounds, max(1, (self.settings.buffer_memory or 0) // whole.size))
        different = [whole, *(raw_request(values, batch_size) for _ in range(1, places))]
        self._requests = list(islice(cycle(different), rounds))
        if rest:
            last = raw_request(values[:rest], batch_size)
            assert last.records == rest
            self._requests.append(last)


class RawLoopback(_Raw):
    """``sendmsg`` of finished requests on one blocking socket, five at most without an answer."""

    def __init__(self, settings: Settings) -> None:
        super().__init__(settings)
        host, _, port = settings.bootstrap_servers.rpartition(":")
        self._socket = socket.create_connection((host, int(port)))
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._answers = b""

    def send(self) -> None:
        """See Client."""
        waiting = 0
        for request in self._requests:
            while waiting >= IN_FLIGHT:
                waiting -= self._await_answers()
            self._send_whole(request.pieces)
            waiting += 1
        while waiting:
            waiting -= self._await_answers()

    def send_and_wait(self, value: bytes) -> None:
        """See Client."""
        self._send_whole(raw_request([value], self.settings.batch_size).pieces)
        while not self._await_answers():
            pass

    def _send_whole(self, pieces: Sequence[Any]) -> None:
        sent = self._socket.sendmsg(pieces)
        for piece in pieces:
            if sent < len(piece):
                self._socket.sendall(piece[sent:])
            sent = max(0, sent - len(piece))

    def _await_answers(self) -> int:
        """Wait for bytes; how many whole answers have come."""
        chunk = self._socket.recv(LARGEST_ANSWER)
        assert chunk, "the sink closed the connection"
        self._answers += chunk
        whole = 0
        while len(self._answers) >= 4:
            end = 4 + int.from_bytes(self._answers[:4], "big")
            if len(self._answers) < end:
                break
            self._answers = self._answers[end:]
            whole += 1
        return whole

    def close(self) -> None:
        """See Client."""
        self._socket.close()


class MemoryCopy(_Raw):
    """A copy of the same bytes within memory, once: ``memcpy``, and nobody to receive it."""

    def prepare(self, values: Sequence[bytes], keys: Sequence[bytes] | None) -> None:
        """See Client."""
        super().prepare(values, keys)
        largest = max((request.size for request in self._requests), default=0)
        self._room = memoryview(bytearray(largest))

    def send(self) -> None:
        """See Client."""
        room = self._room
        for request in self._requests:
            at = 0
            for piece in request.pieces:
                end = at + len(piece)
                room[at:end] = piece
                at = end

    def close(self) -> None:
        """See Client."""
