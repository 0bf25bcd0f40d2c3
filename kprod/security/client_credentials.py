"""Tokens from an issuer, for a client that has a secret there (RFC 6749, 4.4), by urllib3."""

from __future__ import annotations

import json
import math
import ssl
import time
from collections.abc import Callable
from typing import Any
from urllib.parse import quote_plus, urlencode

from kprod.config.security_rules import is_issuer
from kprod.errors import ConfigError, SaslAuthenticationError
from kprod.security.http_request import NoAnswer, request
from kprod.transport.tls_context import read_pem


def trusting(cafile: str | None) -> ssl.SSLContext:
    """A context for its certificate; the system's authorities without ``cafile``.

    ``cafile`` is the path of a PEM file, or PEM text. Raises ConfigError for what cannot be used.
    """
    if cafile is None:
        return ssl.create_default_context()
    text = read_pem("sasl_oauthbearer_cafile", cafile)
    try:
        return ssl.create_default_context(cadata=text)
    except ssl.SSLError as error:
        raise ConfigError(f"sasl_oauthbearer_cafile: {error.reason or error}") from None


TIMEOUT = 5.0
"""Seconds for the issuer to answer: the broker waits for the token meanwhile."""
MOST_BYTES = 256 * 1024
"""No token is longer."""
LONGEST_CODE = 100


class ClientCredentials:
    """A token provider: ``token()`` fetches one. The secret is asked for each time. Any thread.

    ``trust`` makes the context for the issuer's certificate, each time, too: files may change.
    ``timeout``: seconds for a whole answer.
    """

    def __init__(
        self,
        url: str,
        client_id: str,
        secret: Callable[[], str],
        scope: str | None = None,
        trust: Callable[[], ssl.SSLContext] = ssl.create_default_context,
        timeout: float = TIMEOUT,
    ) -> None:
        """Raises ConfigError for a ``url`` with a user, or neither https nor on this machine."""
        if not is_issuer(url):
            # Without the address, which may hold a key.
            raise ConfigError(
                "an issuer's URL: expected https://HOST/... without a user, or http on this machine"
            )
        self._url = url
        self._place = url.partition("?")[0]  # a query may hold a key
        self._client_id = client_id
        self._secret = secret
        self._scope = scope
        self._trust = trust
        self._timeout = timeout

    def __repr__(self) -> str:
        return f"ClientCredentials({self._place!r}, {self._client_id!r})"

    def token(self) -> tuple[str, float] | str:
        """A token, and when it expires if the issuer told. Raises SaslAuthenticationError."""
        status, told = self._ask()
        if status != 200 or "error" in told:
            word = f": {_code(told['error'])}" if "error" in told else ""
            raise self._none(f"HTTP status {status}{word}")
        token, lifetime = told.get("access_token"), told.get("expires_in")
        if not isinstance(token, str):
            raise self._none("its answer has no access_token")
        if lifetime is None:
            return token
        if (seconds := _seconds(lifetime)) is None:
            raise self._none("its answer has no number of seconds for expires_in")
        return token, time.time() + seconds

    def _ask(self) -> tuple[int, dict[str, Any]]:
        """The status of the answer, and the object in it, which may be empty on an error."""
        try:
            answer = request(
                "POST",
                self._url,
                body=self._form(),
                headers=self._headers(),
                context=self._trust(),
                timeout=self._timeout,
                most_bytes=MOST_BYTES,
            )
        except NoAnswer as error:
            raise self._none(str(error)) from None
        return answer.status, self._object(answer.status, answer.body)

    def _form(self) -> str:
        scope = {} if self._scope is None else {"scope": self._scope}
        return urlencode({"grant_type": "client_credentials", **scope})

    def _headers(self) -> dict[str, str]:
        """The client's name and secret are encoded before they are joined (RFC 6749, 2.3.1)."""
        from urllib3 import make_headers

        login = f"{quote_plus(self._client_id)}:{quote_plus(self._secret())}"
        return {
            **make_headers(basic_auth=login, user_agent="kprod"),
            "accept": "application/json",
            "content-type": "application/x-www-form-urlencoded",
        }

    def _object(self, status: int, body: bytes) -> dict[str, Any]:
        try:
            found = json.loads(body)
        except (ValueError, RecursionError):
            found = None
        if isinstance(found, dict):
            return found
        if status == 200:
            raise self._none("its answer is not an object of JSON; is this its token endpoint?")
        return {}

    def _none(self, reason: str) -> SaslAuthenticationError:
        return SaslAuthenticationError(f"OAUTHBEARER: no token from {self._place}: {reason}")


def _seconds(told: object) -> float | None:
    """A finite number, perhaps as text; None for anything else."""
    try:
        seconds = float(told)  # type: ignore[arg-type]
    except (ValueError, TypeError, OverflowError):
        return None
    return seconds if math.isfinite(seconds) else None


def _code(told: object) -> str:
    """An error code of the issuer (RFC 6749, 5.2); nothing else it may have put there."""
    text = str(told)
    fits = len(text) <= LONGEST_CODE and text.isascii() and text.isprintable()
    return text if fits else "an error without a proper code"
