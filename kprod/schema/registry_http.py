"""Requests to a schema registry: its addresses in turn, and a time for all attempts"""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from kprod.clock import ExponentialBackoff
from kprod.lock import Lock
from kprod.schema.errors import (
    RETRIED,
    IncompatibleSchemaError,
    RegistryError,
    SchemaNotFoundError,
)
from kprod.security.http_request import Answer, Distrusted, NoAnswer, request
from kprod.transport.tls_context import TlsContexts, TlsSettings
from kprod_ext.peer_text import printable

_log = logging.getLogger("kprod.schema")

MEDIA_TYPE = "application/vnd.schemaregistry.v1+json"
MOST_BYTES = 16 * 1024 * 1024
LONGEST_MESSAGE = 2000
NOT_FOUND = 404
CONFLICT = 409

Authorization = Callable[[], dict[str, str]]


class RegistryHttp:
    """Asks the registry, and asks again while a failure may pass. Thread-safe.

    ``seconds`` bounds a call with all its attempts, ``request_seconds`` each attempt. Addresses are
    tried in turn, beginning with the one that answered last; each has an authorization.
    """

    def __init__(
        self,
        urls: Sequence[str],
        authorizations: Sequence[Authorization],
        headers: Mapping[str, str],
        tls: TlsSettings,
        seconds: float,
        request_seconds: float,
        backoff: ExponentialBackoff,
    ) -> None:
        self._urls = [url.rstrip("/") for url in urls]
        self._authorizations = authorizations  # one for each of them
        self._headers = dict(headers)
        self._contexts = TlsContexts(tls) if any(url.startswith("https") for url in urls) else None
        self._tls_lock = Lock()
        self._seconds = seconds
        self._request_seconds = request_seconds
        self._backoff = backoff
        self._first = 0  # the address that answered last

    def ask(self, method: str, path: str, body: Mapping[str, Any] | None = None) -> Any:
        """The content of the answer's JSON.

        Raises SchemaNotFoundError, IncompatibleSchemaError, and RegistryError for other refusals
        and when no address answered in time: the last answer, or why none came.
        """
        deadline = time.monotonic() + self._seconds
        attempt = 0
        answered = before = None
        while True:
            error = self._round(method, path, body, deadline)
            if not isinstance(error, RegistryError):
                return error
            if time.monotonic() >= deadline:
                error = before or error  # the last attempt had only what was left of the time
            before = error
            if error.status is not None:
                answered = error
            attempt += 1
            wait = self._backoff.delay(attempt)
            if not error.retriable or time.monotonic() + wait >= deadline:
                raise answered or error
            _log.warning("%s; trying again", error.with_number())
            time.sleep(wait)

    def _round(
        self, method: str, path: str, body: Mapping[str, Any] | None, deadline: float
    ) -> Any:
        """The JSON of the first address that gives any, or a RegistryError.

        That is the last one that may pass, if there is any.
        """
        first, found = self._first, None
        for turn in range(len(self._urls)):
            at = (first + turn) % len(self._urls)
            left = min(self._request_seconds, deadline - time.monotonic())
            if left <= 0 and found is not None:
                break
            told = self._once(at, method, path, body, max(left, 0.001))
            if not _asks_another(told):
                self._first = at
                return told
            if found is None or told.retriable:
                found = told
        return found

    def _once(
        self, at: int, method: str, path: str, body: Mapping[str, Any] | None, seconds: float
    ) -> Any:
        url = self._urls[at]
        try:
            answer = request(
                method,
                url + path,
                body=None if body is None else json.dumps(body),
                headers=self._all_headers(self._authorizations[at]),
                context=self._context(),
                timeout=seconds,
                most_bytes=MOST_BYTES,
            )
        except Distrusted as error:
            refused = RegistryError(f"schema registry {url}: its certificate was refused: {error}")
            refused.retriable = False
            return refused
        except NoAnswer as error:
            return RegistryError(f"schema registry {url}: {error}")
        return _read(f"schema registry {url}: {method} {path.partition('?')[0]}", answer)

    def _all_headers(self, authorization: Authorization) -> dict[str, str]:
        return {
            "accept": f"{MEDIA_TYPE}, application/json",
            "content-type": MEDIA_TYPE,
            "user-agent": "kprod",
            **authorization(),
            **self._headers,
        }

    def _context(self) -> Any:
        if self._contexts is None:
            return None
        with self._tls_lock:
            return self._contexts.current()


def _asks_another(told: Any) -> bool:
    """Whether another address may have an answer: this one has none, or not now."""
    return isinstance(told, RegistryError) and (told.retriable or told.status is None)


def _read(what: str, answer: Answer) -> Any:
    try:
        found = json.loads(answer.body)
    except (ValueError, RecursionError):
        found = None
    if 200 <= answer.status < 300:
        if found is None:
            return RegistryError(f"{what}: the answer is not JSON; is this its address?")
        return found
    told = found if isinstance(found, dict) else {}
    code = told.get("error_code")
    message = printable(str(told.get("message", "")))[:LONGEST_MESSAGE]
    text = f"{what}: {_told(answer.status)}" + (f": {message}" if message else "")
    kind = {NOT_FOUND: SchemaNotFoundError, CONFLICT: IncompatibleSchemaError}.get(answer.status)
    return (kind or RegistryError)(text, answer.status, code if isinstance(code, int) else None)


_WORDS = {
    401: "it does not know these credentials",
    403: "these credentials may not do this",
    404: "it has no such schema",
    409: "the schema is not compatible with those before it",
    422: "it takes the schema for invalid",
}


def _told(status: int) -> str:
    words = _WORDS.get(status, "it refused" if status not in RETRIED else "it cannot answer now")
    return f"{words} (HTTP status {status})"
