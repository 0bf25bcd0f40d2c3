"""HTTP requests to a schema registry with several addresses, with retries and a time-out."""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from kprod.clock import ExponentialBackoff, monotonic
from kprod.config.secret import Secret
from kprod.lock import Lock
from kprod.schema.errors import (
    RETRIED,
    IncompatibleSchemaError,
    RegistryError,
    SchemaNotFoundError,
)
from kprod.security.http_request import Answer, Distrusted, NoAnswer, ProxyRefused, request
from kprod.transport.tls_context import TlsContexts, TlsSettings
from kprod_ext.peer_text import printable

_log = logging.getLogger("kprod.schema")

MEDIA_TYPE = "application/vnd.schemaregistry.v1+json"
MOST_BYTES = 2 * 1024 * 1024
"""A registry stores a schema in a record, by default of at most 1 MiB. Parsing a hostile answer
takes thirty times its size in memory."""
LONGEST_MESSAGE = 2000
NOT_FOUND = 404
CONFLICT = 409

Authorization = Callable[[], dict[str, str]]


class RegistryHttp:
    """Sends requests to the registry, and retries temporary failures. Thread-safe.

    ``seconds`` limits a call with all its attempts, and ``request_seconds`` limits each attempt.
    Addresses are tried in order, starting with the one that answered last. Each address has its own
    authorization. ``headers`` are computed again for each request.
    """

    def __init__(
        self,
        urls: Sequence[str],
        authorizations: Sequence[Authorization],
        headers: Authorization,
        tls: TlsSettings,
        seconds: float,
        request_seconds: float,
        backoff: ExponentialBackoff,
    ) -> None:
        self._urls = [url.rstrip("/") for url in urls]
        self._authorizations = authorizations  # one for each address
        self._headers = headers
        self._contexts = TlsContexts(tls) if any(url.startswith("https") for url in urls) else None
        self._tls_lock = Lock()
        self._seconds = seconds
        self._request_seconds = request_seconds
        self._backoff = backoff
        self._first = 0  # the address that answered last

    def ask(self, method: str, path: str, body: Mapping[str, Any] | None = None) -> Any:
        """The parsed JSON of the answer.

        Raises SchemaNotFoundError or IncompatibleSchemaError. For other refusals, and if no address
        answers in time, raises RegistryError with the last answer or failure.
        """
        deadline = monotonic() + self._seconds
        attempt = 0
        answered = before = None
        while True:
            error = self._round(method, path, body, deadline)
            if not isinstance(error, RegistryError):
                return error
            if monotonic() >= deadline:
                error = before or error  # the last attempt had only the remaining time
            before = error
            if error.status is not None:
                answered = error
            attempt += 1
            wait = self._backoff.delay(attempt)
            if not error.retriable or monotonic() + wait >= deadline:
                raise answered or error
            _log.warning("%s; trying again", error.with_number())
            time.sleep(wait)

    def _round(
        self, method: str, path: str, body: Mapping[str, Any] | None, deadline: float
    ) -> Any:
        """The JSON of the first address that answers, or an error (which is not raised).

        If several addresses failed, the last temporary error is returned; without one, the first
        error.
        """
        first, found = self._first, None
        for turn in range(len(self._urls)):
            at = (first + turn) % len(self._urls)
            left = min(self._request_seconds, deadline - monotonic())
            if left <= 0 and found is not None:
                break
            reply = self._once(at, method, path, body, max(left, 0.001))
            if not _asks_another(reply):
                self._first = at
                return reply
            if found is None or reply.retriable:
                found = reply
        return found

    def _once(
        self, at: int, method: str, path: str, body: Mapping[str, Any] | None, seconds: float
    ) -> Any:
        url = self._urls[at]
        try:
            answer = request(
                method,
                Secret(url + path),
                body=None if body is None else json.dumps(body),
                headers=lambda: self._all_headers(self._authorizations[at]),
                context=self._context(),
                timeout=seconds,
                most_bytes=MOST_BYTES + 1,
            )
        except Distrusted as error:
            why = f"schema registry {url}: its certificate was refused: {error}"
            return RegistryError(why, retriable=False)
        except ProxyRefused as error:
            return RegistryError(f"schema registry {url}: {error}", retriable=False)
        except NoAnswer as error:
            return RegistryError(f"schema registry {url}: {error}")
        return _read(f"schema registry {url}: {method} {path.partition('?')[0]}", answer)

    def _all_headers(self, authorization: Authorization) -> dict[str, str]:
        return {
            "accept": f"{MEDIA_TYPE}, application/json",
            "content-type": MEDIA_TYPE,
            "user-agent": "kprod",
            **authorization(),
            **self._headers(),
        }

    def _context(self) -> Any:
        if self._contexts is None:
            return None
        with self._tls_lock:
            return self._contexts.current()


def _asks_another(reply: Any) -> bool:
    """Whether to try another address, because this one did not answer or failed temporarily."""
    return isinstance(reply, RegistryError) and (reply.retriable or reply.status is None)


def _read(what: str, answer: Answer) -> Any:
    if len(answer.body) > MOST_BYTES:
        return RegistryError(f"{what}: the answer has more than {MOST_BYTES} bytes", answer.status)
    try:
        found = json.loads(answer.body)
    except (ValueError, RecursionError):
        found = None
    if 200 <= answer.status < 300:
        if found is None:
            return RegistryError(f"{what}: the answer is not JSON; is this its address?")
        return found
    reply = found if isinstance(found, dict) else {}
    code = reply.get("error_code")
    message = printable(str(reply.get("message", "")))[:LONGEST_MESSAGE]
    text = f"{what}: {_status(answer.status)}" + (f": {message}" if message else "")
    kind = {NOT_FOUND: SchemaNotFoundError, CONFLICT: IncompatibleSchemaError}.get(answer.status)
    return (kind or RegistryError)(text, answer.status, code if isinstance(code, int) else None)


_WORDS = {
    401: "it does not know these credentials",
    403: "these credentials may not do this",
    404: "it has no such schema",
    409: "the schema is not compatible with those before it",
    422: "it considers the schema invalid",
}


def _status(status: int) -> str:
    words = _WORDS.get(status, "it refused" if status not in RETRIED else "it cannot answer now")
    return f"{words} (HTTP status {status})"
