"""An HTTP server on loopback in its own threads; subclasses define the answers."""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from collections.abc import Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, NamedTuple, Self

from kprod.broker import tls_context


class Asked(NamedTuple):
    """One request; header names are in lower case."""

    method: str
    path: str
    headers: Mapping[str, str]
    body: Any


class Answer(NamedTuple):
    status: int
    body: bytes
    headers: tuple[tuple[str, str], ...] = ()


class HttpService(ABC):
    """Serves at ``url`` within its block; by HTTPS with ``certfile``."""

    def __init__(self, certfile: str | None = None) -> None:
        self._closing = threading.Event()
        service = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                headers = {name.lower(): value for name, value in self.headers.items()}
                body = self.rfile.read(int(headers.get("content-length", 0)))
                answer = service.answer(Asked(self.command, self.path, headers, body))
                if answer is None:
                    service._closing.wait()
                    return
                self.send_response(answer.status)
                for header in (*answer.headers, ("content-length", str(len(answer.body)))):
                    self.send_header(*header)
                self.end_headers()
                self.wfile.write(answer.body)

            do_POST = do_GET

            def log_message(self, *_: Any) -> None:
                """Log nothing: requests contain secrets."""

        class Server(ThreadingHTTPServer):
            def handle_error(self, *_: Any) -> None:
                """A client that rejects the certificate closes the connection."""

        self._server = Server(("127.0.0.1", 0), Handler)
        if certfile is not None:
            self._server.socket = tls_context(certfile).wrap_socket(
                self._server.socket, server_side=True, do_handshake_on_connect=False
            )
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.05,))
        scheme = "http" if certfile is None else "https"
        self.url = f"{scheme}://localhost:{self._server.server_port}"

    @abstractmethod
    def answer(self, asked: Asked) -> Answer | None:
        """The answer, or None for no answer. Called in any thread."""

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._closing.set()
        self._server.shutdown()
        self._thread.join(20)
        self._server.server_close()
