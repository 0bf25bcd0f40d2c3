"""The registry of transports by name, including the application's own."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any

from kprod.config.kinds import is_open_backend
from kprod.errors import ConfigError
from kprod.transport.base import Backend

ENTRY_POINTS = "kprod.transports"
"""The entry point group for a package's transports: ``name = "module:factory"``."""

BackendFactory = Callable[..., Backend]
"""A function that makes a backend from its own keyword options, or a backend class."""

_BUILT_IN = {
    "tcp": "kprod.transport.tcp:TcpBackend",
    "unix": "kprod.transport.tcp:UnixBackend",
    "proxy": "kprod.transport.proxy:ProxyBackend",
    "memory": "kprod.transport.memory:MemoryBackend",
}
_NOT_ALONE = {
    "memory": "pass a MemoryBackend, which knows its servers, instead of the name",
    "proxy": "set proxy_url instead",
}
_registered: dict[str, BackendFactory] = {}


def register(name: str, factory: BackendFactory) -> None:
    """Register a transport under ``name``, replacing an earlier one. Thread-safe.

    A registered name takes precedence over a built-in one, and a built-in name over an entry point
    of the group ``kprod.transports``. Raises ConfigError for an invalid name or factory.
    """
    if not name:
        raise ConfigError("the name of a transport is empty")
    if not callable(factory):
        raise ConfigError(f"transport {name!r}: the factory cannot be called")
    _registered[name] = factory


def open_backend(transport: str | BackendFactory | Backend, **options: Any) -> Backend:
    """The backend for ``transport``, which is a name, a factory, or an open backend.

    ``options`` are passed to the factory; an open backend takes none. Raises ConfigError for an
    unknown name, and for a name that is not enough.
    """
    if isinstance(transport, str):
        if transport in _NOT_ALONE and transport not in _registered and not options:
            raise ConfigError(f"transport {transport!r}: {_NOT_ALONE[transport]}")
        return _factory(transport)(**options)
    untyped: Any = transport
    backend: Backend = untyped if is_open_backend(transport) else untyped(**options)
    return backend


def _factory(name: str) -> BackendFactory:
    if name in _registered:
        return _registered[name]
    if name in _BUILT_IN:
        module, _, attribute = _BUILT_IN[name].partition(":")
        factory: BackendFactory = getattr(importlib.import_module(module), attribute)
        return factory
    return _installed(name)


def _installed(name: str) -> BackendFactory:
    """The factory of that name in an installed package. Imports only that package."""
    from importlib.metadata import entry_points  # takes 10 ms, needed for other packages only

    found = {entry.name: entry for entry in entry_points(group=ENTRY_POINTS)}
    if name not in found:
        raise ConfigError(_unknown(name, sorted({*_BUILT_IN, *_registered, *found})))
    factory = found[name].load()
    if not callable(factory):
        raise ConfigError(f"transport {name!r}: {found[name].value} cannot be called")
    made: BackendFactory = factory
    return made


def _unknown(name: str, known: list[str]) -> str:
    import difflib  # needed only for misspelled names

    close = difflib.get_close_matches(name, known, n=1)
    meant = f"; did you mean {close[0]!r}?" if close else ""
    return f"transport {name!r} is unknown, there are {', '.join(known)}{meant}"
