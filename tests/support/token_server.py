"""A token server on loopback (HTTPS): the client credentials grant of RFC 6749, 4.4."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable
from urllib.parse import parse_qs, unquote_plus

from tests.support.guarded_broker import unsigned_token
from tests.support.http_service import Answer, Asked, HttpService

CLIENT, SECRET = "orders:service", "canary %client&secret"
JSON = (("content-type", "application/json"),)


class TokenServer(HttpService):
    """Issues tokens valid for ``lifetime`` seconds to its ``clients``.

    ``authority`` is its CA file. ``odd`` may override the answer to a request; None means the usual
    one. ``issued`` counts tokens; ``scopes`` and ``queries`` list those of the requests.
    """

    def __init__(self, certfile: str, authority: str, lifetime: float = 3600.0) -> None:
        super().__init__(certfile)
        self.url += "/token"
        self.authority = authority
        self.lifetime = lifetime
        self.odd: Callable[[], Answer | None] = lambda: None
        self.clients = {CLIENT: SECRET}
        self.issued = 0
        self.scopes: list[list[str]] = []
        self.queries: list[str] = []

    def answer(self, asked: Asked) -> Answer:
        self.queries.append(asked.path.partition("?")[2])
        return self.odd() or self._usual(asked.headers["authorization"], asked.body)

    def _usual(self, authorization: str, body: bytes) -> Answer:
        kind, _, encoded = authorization.partition(" ")
        name, secret = map(unquote_plus, base64.b64decode(encoded).decode().split(":"))
        if kind != "Basic" or self.clients.get(name) != secret:
            return Answer(401, b'{"error": "invalid_client"}')
        form = parse_qs(body.decode())
        if form.get("grant_type") != ["client_credentials"]:
            return Answer(400, b'{"error": "unsupported_grant_type"}')
        self.issued += 1
        self.scopes.append(form.get("scope", []))
        token = unsigned_token(self.lifetime)
        answer = {"access_token": token, "token_type": "Bearer", "expires_in": self.lifetime}
        return Answer(200, json.dumps(answer).encode(), JSON)
