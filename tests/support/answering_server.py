"""A server on this machine that says what a test wants, whatever it is asked."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress


class AnsweringServer:
    """``sent`` are the pieces of answers that left while the client was there."""

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
    """Sends the pieces of the answer to a request, so many seconds apart, and ends the connection.

    It answers one request, or as many as come, each once it has ``until`` in it. Who connects and
    asks nothing is passed over: the port may have been that of a broker whose clients, in other
    tests, still look for it.
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
