"""A server on loopback that sends the same answer to any request."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress


class AnsweringServer:
    """``sent``: the pieces of answers that were sent before the client disconnected."""

    def __init__(self, listener: socket.socket, until: bytes) -> None:
        self.host, self.port = listener.getsockname()
        self._until = until
        self.requests: list[bytes] = []
        self.sent: list[bytes] = []
        self.leaves = threading.Event()

    def serve(
        self,
        listener: socket.socket,
        answer: Callable[[bytes], Iterable[bytes]],
        pause: float,
        often: bool,
    ) -> None:
        while often or not self.requests:
            with suppress(OSError):
                client, _ = listener.accept()
                with client:
                    client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                    client.settimeout(20)
                    self._talk(client, answer, pause)
            if self.leaves.is_set():
                return

    def _talk(
        self, client: socket.socket, answer: Callable[[bytes], Iterable[bytes]], pause: float
    ) -> None:
        request = b""
        while not request or self._until not in request:
            if not (more := client.recv(65536)):
                return
            request += more
        self.requests.append(request)
        for piece in answer(request):
            client.sendall(piece)
            self.sent.append(piece)
            if self.leaves.wait(pause):
                return


@contextmanager
def answering(
    answer: Callable[[bytes], Iterable[bytes]],
    pause: float = 0.0,
    *,
    often: bool = False,
    until: bytes = b"\r\n\r\n",
) -> Iterator[AnsweringServer]:
    """Answer a request in pieces, ``pause`` seconds apart, and close the connection.

    It answers one request, or all (``often``), each once it contains ``until``. Connections without
    a request are ignored: they may come from another test's client.
    """
    with socket.create_server(("127.0.0.1", 0)) as listener:
        server = AnsweringServer(listener, until)
        thread = threading.Thread(target=server.serve, args=(listener, answer, pause, often))
        thread.start()
        try:
            yield server
        finally:
            server.leaves.set()
            with suppress(OSError):
                listener.shutdown(socket.SHUT_RDWR)
            thread.join(20)
