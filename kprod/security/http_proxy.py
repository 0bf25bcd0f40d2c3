"""The proxy for HTTP requests, from environment variables."""

from __future__ import annotations

from base64 import b64encode
from ipaddress import ip_address
from typing import NamedTuple
from urllib.parse import unquote, urlsplit
from urllib.request import getproxies, proxy_bypass

from kprod.config.secret import Secret


class HttpProxy(NamedTuple):
    """A proxy. ``url`` has no login. ``authorization`` is the header for the login, or None."""

    url: str
    authorization: Secret | None

    @property
    def place(self) -> str:
        """``HOST:PORT``."""
        return self.url.partition("//")[2]


class UnusableProxy(Exception):
    """The environment names another kind of proxy (SOCKS, TLS). The text omits the login."""


def environment_proxy(scheme: str, place: str) -> HttpProxy | None:
    """The proxy for ``scheme://place``.

    It is named by ``HTTPS_PROXY`` or ``HTTP_PROXY``, depending on the scheme, or else by
    ``ALL_PROXY``. There is no proxy for hosts in ``NO_PROXY``. As in Go, there is also none for
    this machine: unencrypted logins to this machine are allowed, and must not leave it. Raises
    UnusableProxy.
    """
    if _is_this_machine(place) or proxy_bypass(place):
        return None
    found = _read(_named(scheme))
    if found is None and _named(scheme):
        raise UnusableProxy(
            f"the proxy in the environment ({scheme.upper()}_PROXY or ALL_PROXY) is not"
            " http://[user:password@]host:port; NO_PROXY lists hosts that need none"
        )
    return found


def _is_this_machine(place: str) -> bool:
    host = urlsplit(f"//{place}").hostname or ""
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _named(scheme: str) -> str:
    proxies = getproxies()
    return proxies.get(scheme) or proxies.get("all") or ""


def _read(given: str) -> HttpProxy | None:
    try:
        parts = urlsplit(given if "://" in given else f"http://{given}")
        port = parts.port or 80
    except ValueError:
        return None
    if parts.scheme != "http" or not parts.hostname:
        return None
    login = None
    if parts.username is not None:
        text = f"{unquote(parts.username)}:{unquote(parts.password or '')}"
        login = Secret(f"Basic {b64encode(text.encode(errors='replace')).decode()}", "a proxy")
    host = f"[{parts.hostname}]" if ":" in parts.hostname else parts.hostname
    return HttpProxy(f"http://{host}:{port}", login)
