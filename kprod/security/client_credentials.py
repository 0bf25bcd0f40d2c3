"""OAuth tokens by the client credentials grant (RFC 6749, 4.4), with urllib3."""

from __future__ import annotations

import json
import math
import ssl
from collections.abc import Callable
from typing import Any
from urllib.parse import quote_plus, urlencode

from kprod.clock import wall
from kprod.config.secret import Secret
from kprod.config.security_rules import is_issuer
from kprod.errors import ConfigError, SaslAuthenticationError
from kprod.security.http_request import NoAnswer, request
from kprod.transport.tls_context import trust


def trusting(cafile: str | None) -> ssl.SSLContext:
    """A TLS context that trusts ``cafile``, or the system's authorities if ``cafile`` is None.

    ``cafile`` is PEM text, or the path of a PEM file or of a directory. Raises ConfigError for an
    invalid ``cafile``.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    trust("sasl_oauthbearer_cafile", cafile, context)
    return context


TIMEOUT = 5.0
"""Seconds for the issuer to answer; the broker waits for the token meanwhile."""
MOST_BYTES = 256 * 1024
"""Limit of the answer; no token is longer."""
LONGEST_CODE = 100


class ClientCredentials:
    """A token provider, whose ``token()`` requests a token from an issuer (OAuth). Thread-safe.

    ``secret`` is a string, or a callable that is called for each request. ``trust`` is also called
    for each request, because files may change. It creates the SSL context that checks the issuer's
    certificate. ``timeout`` limits the whole request, in seconds.
    """

    def __init__(
        self,
        url: str,
        client_id: str,
        secret: str | Callable[[], str],
        scope: str | None = None,
        trust: Callable[[], ssl.SSLContext] = ssl.create_default_context,
        timeout: float = TIMEOUT,
    ) -> None:
        """Raise ConfigError if ``url`` contains a user, or is neither https nor on this machine."""
        self._url = Secret(url, "url", may_be_pickled="?" not in str(url))
        self._place = ""  # set once the URL is valid, and so known to contain no secret
        self._client_id = client_id
        self._secret = Secret(secret, "secret")
        self._scope = scope
        self._trust = trust
        self._timeout = timeout
        del url, secret  # a traceback may show local variables
        if not is_issuer(self._url.reveal()):
            raise ConfigError(
                "an issuer's URL: expected https://HOST/... without a user, or http on this machine"
            )
        self._place = self._url.reveal().partition("?")[0]

    def __repr__(self) -> str:
        return f"ClientCredentials({self._place!r}, {self._client_id!r})"

    def token(self) -> tuple[str, float] | str:
        """Request a token, and return it, with its expiry if the issuer has named one.

        Raises SaslAuthenticationError.
        """
        status, answer = self._ask()
        if status != 200 or "error" in answer:
            word = f": {_code(answer['error'])}" if "error" in answer else ""
            raise self._none(f"HTTP status {status}{word}")
        token, lifetime = answer.get("access_token"), answer.get("expires_in")
        if not isinstance(token, str):
            raise self._none("its answer has no access_token")
        if lifetime is None:
            return token
        if (seconds := _seconds(lifetime)) is None:
            raise self._none("its answer has no number of seconds for expires_in")
        return token, wall() + seconds

    def _ask(self) -> tuple[int, dict[str, Any]]:
        """The status and the JSON object of the answer. After an error, the object may be empty."""
        try:
            answer = request(
                "POST",
                self._url,
                body=self._form(),
                headers=self._headers,
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
        """The headers, which contain the encoded client id and secret (RFC 6749, 2.3.1)."""
        from urllib3 import make_headers

        try:
            name, secret = quote_plus(self._client_id), Secret(quote_plus(self._secret.reveal()))
        except UnicodeEncodeError:
            name, secret = "", None  # the error contains the text
        if secret is None:
            raise self._none("the client's name or secret cannot be encoded in UTF-8")
        login = Secret(f"{name}:{secret.reveal()}")
        return {
            **make_headers(basic_auth=login.reveal(), user_agent="kprod"),
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
            raise self._none("its answer is not a JSON object; is this its token endpoint?")
        return {}

    def _none(self, reason: str) -> SaslAuthenticationError:
        return SaslAuthenticationError(f"OAUTHBEARER: no token from {self._place}: {reason}")


def _seconds(value: object) -> float | None:
    """A finite number, which may be given as text; None for anything else."""
    try:
        seconds = float(value)  # type: ignore[arg-type]
    except (ValueError, TypeError, OverflowError):
        return None
    return seconds if math.isfinite(seconds) else None


def _code(value: object) -> str:
    """The issuer's error code, if it is valid (RFC 6749, 5.2)."""
    text = str(value)
    fits = len(text) <= LONGEST_CODE and text.isascii() and text.isprintable()
    return text if fits else "an error without a proper code"
