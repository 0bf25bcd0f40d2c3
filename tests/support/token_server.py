"""An issuer of tokens on loopback, by HTTPS: the client credentials grant of RFC 6749, 4.4."""

from __future__ import annotations

import base64
import json
import threading
from collections.abc import Callable
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, NamedTuple, Self
from urllib.parse import parse_qs, unquote_plus

from kprod.broker import tls_context
from tests.support.guarded_broker import unsigned_token

TRICKLE = b"a byte now and then"
CLIENT, SECRET = "orders:service", "canary %client&secret"


class Answer(NamedTuple):
    """What is sent for a request; ``TRICKLE`` and nothing never come to an end."""

    status: int
    body: bytes
    headers: tuple[tuple[str, str], ...] = ()


class TokenServer:
    """Issues tokens valid for ``lifetime`` seconds to its ``clients``, of which it knows one.

    ``authority`` is the file that vouches for its certificate. ``odd`` may be set meanwhile: it
    then tells the answer to a request, or None for the usual one.
    ``issued`` counts tokens, ``scopes`` lists what was asked for, ``queries`` by which addresses.
    """

    def __init__(self, certfile: str, authority: str, lifetime: float = 3600.0) -> None:
        self.authority = authority
        self.lifetime = lifetime
        self.odd: Callable[[], Answer | None] = lambda: None
        self.clients = {CLIENT: SECRET}
        self.issued = 0
        self.scopes: list[list[str]] = []
        self.queries: list[str] = []
        self._closing = threading.Event()
        issuer = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                issuer.queries.append(self.path.partition("?")[2])
                body = self.rfile.read(int(self.headers["content-length"]))
                answer = issuer.odd() or issuer._answer(self.headers["authorization"], body)
                if not answer.body:
                    issuer._closing.wait()
                    return
                if answer.body == TRICKLE:
                    self._trickle()
                    return
                self.send_response(answer.status)
                for header in (*answer.headers, ("content-length", str(len(answer.body)))):
                    self.send_header(*header)
                self.end_headers()
                self.wfile.write(answer.body)

            def _trickle(self) -> None:
                self.wfile.write(b"HTTP/1.1 200 OK\r\ncontent-length: 1000000\r\n\r\n")
                with suppress(OSError):
                    while not issuer._closing.wait(0.02):
                        self.wfile.write(b" ")

            def log_message(self, *_: Any) -> None:
                """Nothing: what is issued is a secret."""

        class Server(ThreadingHTTPServer):
            def handle_error(self, *_: Any) -> None:
                """A client that does not trust us ends the connection."""

        self._server = Server(("127.0.0.1", 0), Handler)
        self._server.socket = tls_context(certfile).wrap_socket(
            self._server.socket, server_side=True, do_handshake_on_connect=False
        )
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.05,))
        self.url = f"https://localhost:{self._server.server_port}/token"

    def _answer(self, authorization: str, body: bytes) -> Answer:
        kind, _, encoded = authorization.partition(" ")
        name, secret = map(unquote_plus, base64.b64decode(encoded).decode().split(":"))
        if kind != "Basic" or self.clients.get(name) != secret:
            return Answer(401, b'{"error": "invalid_client"}')
        form = parse_qs(body.decode())
        if form.get("grant_type") != ["client_credentials"]:
            return Answer(400, b'{"error": "unsupported_grant_type"}')
        self.issued += 1
        self.scopes.append(form.get("scope", []))
        told = {
            "access_token": unsigned_token(self.lifetime),
            "token_type": "Bearer",
            "expires_in": self.lifetime,
        }
        return Answer(200, json.dumps(told).encode(), (("content-type", "application/json"),))

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._closing.set()
        self._server.shutdown()
        self._thread.join(20)
        self._server.server_close()
