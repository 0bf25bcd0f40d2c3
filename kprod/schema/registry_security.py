"""Credentials and TLS for a schema registry."""

from __future__ import annotations

import base64
import re
import ssl
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple, TypedDict
from urllib.parse import SplitResult, unquote, urlsplit

from kprod.config.secret import Secret, exposed
from kprod.errors import ConfigError, KprodError
from kprod.schema.errors import RegistryError
from kprod.schema.registry_http import Authorization
from kprod.security.oauthbearer import ProvidedTokens
from kprod.transport.tls_context import TlsSettings


class RegistrySecurity(TypedDict, total=False):
    """The options of ``SchemaRegistry`` for credentials and TLS."""

    username: str | None
    password: str | Callable[[], str] | None
    token: Any
    ssl_context: ssl.SSLContext | None
    ssl_cafile: str | None
    ssl_certfile: str | None
    ssl_keyfile: str | None
    ssl_password: str | Callable[[], str] | None


_IN_A_HEADER = re.compile(r"[\t\x20-\x7e\xa0-\xff]*")
_PUBLIC_HEADERS = ("target-sr-cluster", "confluent-identity-pool-id")
"""Headers without secrets; all others may contain one."""


def check_names(options: Mapping[str, Any]) -> None:
    """Raise ConfigError for an unknown option."""
    unknown = options.keys() - RegistrySecurity.__annotations__.keys()
    if unknown:
        raise ConfigError(f"a schema registry has no option {min(unknown)!r}")


def tls_settings(options: dict[str, Any]) -> TlsSettings:
    """The TLS context for HTTPS."""
    password = options.get("ssl_password")
    return TlsSettings(
        context=options.get("ssl_context"),
        cafile=exposed(options.get("ssl_cafile")),
        certfile=exposed(options.get("ssl_certfile")),
        keyfile=exposed(options.get("ssl_keyfile")),
        key_password=None if password is None else _secret(password, "ssl_password").reveal,
    )


def authorization(options: dict[str, Any]) -> Authorization:
    """A function that makes the ``Authorization`` header. Raises ConfigError for two methods."""
    username, token = exposed(options.get("username")), options.get("token")
    if token is not None and username is not None:
        raise ConfigError("a registry takes either username and password or a token, not both")
    if token is not None:
        provider = token.reveal if isinstance(token, Secret) else token
        tokens = ProvidedTokens(provider, mechanism="schema registry")
        return lambda: {"authorization": f"Bearer {_token(tokens).reveal()}"}
    if username is not None:
        password = _secret(options.get("password") or "", "password")
        return lambda: {"authorization": f"Basic {_login(username, password).reveal()}"}
    return dict


def authorizations(found: Sequence[Address], options: dict[str, Any]) -> list[Authorization]:
    """The authorization for each address.

    If no address contains a login, the options decide. Otherwise, each address uses its own login,
    and an address without a login uses the last login of the others. Raises ConfigError.
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


def hidden_headers(given: Any) -> dict[str, Secret] | None:
    """The headers as secrets. Only harmless headers and callables can be pickled."""
    if not isinstance(given or {}, Mapping):
        return None
    return {name: _hidden_header(name, value) for name, value in (given or {}).items()}


def _hidden_header(name: Any, value: Any) -> Secret:
    public = str(name).lower() in _PUBLIC_HEADERS
    return value if isinstance(value, Secret) else Secret(value, f"headers: {name!r}", public)


def check_headers(headers: dict[str, Secret] | None) -> dict[str, Secret]:
    """The headers. Raises ConfigError, without its value, for a header that cannot be sent."""
    if headers is None or not all(isinstance(name, str) for name in headers):
        raise ConfigError("headers: expected a mapping of names to values")
    for name, value in headers.items():
        if not value.is_asked_for and not _fits_a_header(value):
            raise ConfigError(f"headers: the value of {name!r} is not one line of Latin-1 text")
    return headers


def header(name: str, value: Secret) -> str:
    """The header's current value. Raises RegistryError if the value cannot be sent."""
    now = Secret(_revealed(value, f"headers: {name!r}"))
    if not _fits_a_header(now):
        raise RegistryError(f"headers: the value of {name!r} is not one line of Latin-1 text")
    return now.reveal()


def _fits_a_header(value: Secret) -> bool:
    text = exposed(value)
    return isinstance(text, str) and _IN_A_HEADER.fullmatch(text) is not None


def _token(tokens: ProvidedTokens) -> Secret:
    try:
        token = Secret(tokens.token(), "token")
    except KprodError as error:
        raise RegistryError(str(error)) from error
    if not _fits_a_header(token):
        raise RegistryError("token: its value is not one line of Latin-1 text")
    return token


def _revealed(secret: Secret, name: str) -> str:
    try:
        return secret.reveal()
    except KprodError:
        raise
    except Exception as error:  # its text may contain the secret
        kind = type(error).__qualname__
        raise RegistryError(f"{name}: the callable that returns it raised {kind}") from None


def _login(username: str, password: Secret) -> Secret:
    """The Basic login in UTF-8 (RFC 7617, 2.1), as in Confluent's Java clients. urllib3 differs."""
    login = Secret(f"{username}:{_revealed(password, 'password')}")
    try:
        return Secret(base64.b64encode(login.reveal().encode()).decode())
    except UnicodeEncodeError:
        pass  # the error contains the text
    raise RegistryError("password: user or password cannot be encoded in UTF-8")


class Address(NamedTuple):
    """The URL of a registry without the login; and the login (user and password), or None."""

    url: str
    login: tuple[str, Secret] | None


def hidden_urls(url: Any) -> list[Secret]:
    """The addresses in ``url``: one, several separated by commas, or a sequence.

    Addresses without a login can be pickled.
    """
    given = url.split(",") if isinstance(url, str) else list(url or ())
    return [
        each
        if isinstance(each, Secret)
        else Secret(each, "url", may_be_pickled="@" not in str(each))
        for each in given
    ]


def addresses(urls: Sequence[Secret]) -> list[Address]:
    """The parsed addresses. Raises ConfigError, whose text does not contain them."""
    if not urls:
        raise ConfigError("url: expected the address of a registry, got none")
    found = [_address(url) for url in urls]
    for each in found:
        if isinstance(each, str):
            raise ConfigError(each)
    return [each for each in found if isinstance(each, Address)]


def _address(url: Secret) -> Address | str:
    """The address, or an error text. It is not raised, because this frame contains the secret."""
    text = exposed(url)
    parts = _split(text.strip()) if isinstance(text, str) else None
    # Text after the host is most likely the rest of an unescaped password.
    whole = parts is not None and "\\" not in text and "@" not in parts.path
    if parts is None or not whole or parts.scheme not in ("http", "https") or not parts.hostname:
        return (
            "url: expected http://[user:password@]host:port or https://... of a registry; in user"
            " and password write %2F for a slash, %5C for \\, %3F for ?, %23 for #, %5B for [, %2C"
            " for a comma, and in a path %40 for @"
        )
    if parts.query or parts.fragment:  # paths are appended to the URL; a query may contain a key
        return "url: a registry's address has no query: use headers, or a token"
    login = None
    if parts.username is not None:
        login = unquote(parts.username), Secret(unquote(parts.password or ""), "password")
    return Address(_without_login(parts), login)


def _split(url: str) -> SplitResult | None:
    """The parts of an address, or None if it is invalid. An exception could show a password."""
    try:
        parts = urlsplit(url)
        return parts if parts.port != 0 else None
    except ValueError:
        return None


def _without_login(parts: SplitResult) -> str:
    return parts._replace(netloc=parts.netloc.rpartition("@")[2]).geturl()
