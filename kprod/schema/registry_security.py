"""Credentials for a schema registry, and TLS that verifies it"""

from __future__ import annotations

import base64
import re
import ssl
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple, TypedDict
from urllib.parse import SplitResult, quote, unquote, urlsplit

from kprod.config.secret import Secret, exposed
from kprod.errors import ConfigError, KprodError
from kprod.schema.errors import RegistryError
from kprod.schema.registry_http import Authorization
from kprod.security.oauthbearer import ProvidedTokens
from kprod.transport.tls_context import TlsSettings


class RegistrySecurity(TypedDict, total=False):
    """The options of ``SchemaRegistry`` about credentials and TLS."""

    username: str | None
    password: str | Callable[[], str] | None
    token: Any
    ssl_context: ssl.SSLContext | None
    ssl_cafile: str | None
    ssl_certfile: str | None
    ssl_keyfile: str | None
    ssl_password: str | Callable[[], str] | None


_SECRETS = ("password", "token", "ssl_password")
_IN_A_HEADER = re.compile(r"[\t\x20-\x7e\xa0-\xff]*")


def concealed(options: RegistrySecurity) -> dict[str, Any]:
    """The options, and secrets that were given as text as ``Secret``. Raises ConfigError."""
    unknown = options.keys() - RegistrySecurity.__annotations__.keys()
    if unknown:
        raise ConfigError(f"a schema registry has no option {min(unknown)!r}")
    return {
        name: Secret(value, name) if name in _SECRETS and isinstance(value, str) else value
        for name, value in options.items()
    }


def tls_settings(options: dict[str, Any]) -> TlsSettings:
    """The TLS context for HTTPS."""
    password = options.get("ssl_password")
    return TlsSettings(
        context=options.get("ssl_context"),
        cafile=options.get("ssl_cafile"),
        certfile=options.get("ssl_certfile"),
        keyfile=options.get("ssl_keyfile"),
        key_password=None if password is None else _secret(password, "ssl_password").reveal,
    )


def authorization(options: dict[str, Any]) -> Authorization:
    """Makes the ``Authorization`` header. Raises ConfigError for both kinds together."""
    username, token = options.get("username"), exposed(options.get("token"))
    if token is not None and username is not None:
        raise ConfigError("a registry takes either username and password or a token, not both")
    if token is not None:
        provider = (lambda: token) if isinstance(token, str) else token
        tokens = ProvidedTokens(provider, mechanism="schema registry")
        return lambda: {"authorization": f"Bearer {_token(tokens)}"}
    if username is not None:
        password = _secret(options.get("password") or "", "password")
        return lambda: _basic(username, _told(password))
    return dict


def authorizations(found: Sequence[Address], options: dict[str, Any]) -> list[Authorization]:
    """What authenticates the client at each address: the login in it, if any has one.

    An address without a login takes the last one that stands in another. Raises ConfigError.
    """
    last = next((each.login for each in reversed(found) if each.login), None)
    if last is None:
        return [authorization(options)] * len(found)
    logins = [each.login or last for each in found]
    return [
        authorization({**options, "username": username, "password": password})
        for username, password in logins
    ]


def _secret(given: Any, name: str) -> Secret:
    return given if isinstance(given, Secret) else Secret(given, name)


def check_headers(headers: Mapping[str, Any]) -> None:
    """Raises ConfigError for what cannot be sent; values may be secrets, and are not told."""
    for name, value in headers.items():
        if not isinstance(value, str) or not _IN_A_HEADER.fullmatch(value):
            raise ConfigError(f"headers: the value of {name!r} is not one line of Latin-1 text")


def _token(tokens: ProvidedTokens) -> str:
    try:
        token = tokens.token()
    except KprodError as error:
        raise RegistryError(str(error)) from error
    if not _IN_A_HEADER.fullmatch(token):
        raise RegistryError("token: what it tells is not one line of Latin-1 text")
    return token


def _told(password: Secret) -> str:
    try:
        return password.reveal()
    except KprodError:
        raise
    except Exception as error:  # its text might have the password
        kind = type(error).__qualname__
        raise RegistryError(f"password: what tells it failed: {kind}") from None


def _basic(username: str, password: str) -> dict[str, str]:
    """In UTF-8 (RFC 7617, 2.1), as Confluent's clients for Java; urllib3 takes Latin-1 only."""
    login = base64.b64encode(f"{username}:{password}".encode())
    return {"authorization": f"Basic {login.decode()}"}


class Address(NamedTuple):
    """The URL of a registry without user and password, and these; None where it has none."""

    url: str
    login: tuple[str, Secret] | None

    def with_login(self) -> str:
        """The URL as it was given."""
        if self.login is None:
            return self.url
        username, password = self.login
        parts = urlsplit(self.url)
        login = f"{quote(username, safe='')}:{quote(password.reveal(), safe='')}"
        return parts._replace(netloc=f"{login}@{parts.netloc}").geturl()


def addresses(url: str | Sequence[str]) -> list[Address]:
    """The addresses in ``url``: one, several with commas between them, or a sequence.

    Raises ConfigError.
    """
    given = url.split(",") if isinstance(url, str) else list(url)
    if not given:
        raise ConfigError("url: expected the address of a registry, got none")
    return [_address(each.strip()) for each in given]


def _address(url: str) -> Address:
    parts = _split(url)
    # What is behind the host was the rest of a password, most likely.
    whole = parts is not None and "\\" not in url and "@" not in parts.path
    if parts is None or not whole or parts.scheme not in ("http", "https") or not parts.hostname:
        raise ConfigError(
            "url: expected http://[user:password@]host:port or https://... of a registry; in user"
            " and password %2F stands for a slash, %5C for \\, %3F for ?, %23 for #, %5B for [, %2C"
            " for a comma, and in a path %40 for @"
        )
    if parts.query or parts.fragment:  # paths are appended to it; and it may hold a key
        raise ConfigError("url: the address of a registry has no query: give headers, or a token")
    login = None
    if parts.username is not None:
        login = unquote(parts.username), Secret(unquote(parts.password or ""), "password")
    return Address(_without_login(parts), login)


def _split(url: str) -> SplitResult | None:
    """The parts of an address that can be one. Nothing of another is told: it may be a password."""
    try:
        parts = urlsplit(url)
        return parts if parts.port != 0 else None
    except ValueError:
        return None


def _without_login(parts: SplitResult) -> str:
    return parts._replace(netloc=parts.netloc.rpartition("@")[2]).geturl()
