"""Broker addresses as users write them: ``"a:9092,b"``, a list, IPv6 in brackets."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

from kprod.config.kinds import Refused, safe_repr

DEFAULT_PORT = 9092
MOST_ADDRESSES = 1000
MAX_PORT = 65535

_NAME = re.compile(r"[^\s\[\]:/@,%?#\\\x00-\x20\x7f]{1,253}")
_PORT = re.compile(r"[0-9]{1,5}")

Address = tuple[str, int]


class Addresses:
    """One or more ``host[:port]``, kept as ``((host, port), ...)`` in order, without repeats."""

    type_name = "str or list of str"
    expected = '"host:port", "host1:port,host2:port" or a list of them, IPv6 as "[::1]:9092"'

    def convert(self, value: Any) -> tuple[Address, ...]:
        if isinstance(value, str):
            entries: Iterable[Any] = value.split(",")
        elif isinstance(value, list | tuple):
            entries = _split_each(value)
        else:
            raise Refused
        found = tuple(dict.fromkeys(_address(entry) for entry in entries))
        if not found:
            raise Refused("it has no address")
        if len(found) > MOST_ADDRESSES:
            raise Refused(f"{len(found)} addresses; a few are enough to discover the others")
        return found


def _split_each(entries: Iterable[Any]) -> Iterable[Any]:
    for entry in entries:
        if isinstance(entry, str):
            yield from entry.split(",")
        else:
            yield entry


def _address(entry: Any) -> Address:
    if isinstance(entry, str):
        return _parsed(entry.strip())
    match entry:
        case (str(host), int(port)):
            return _checked_host(host, host), _checked_port(f"{port}", f"{host}:{port}")
    raise Refused(f"{safe_repr(entry)} is not an address")


def _parsed(entry: str) -> Address:
    if not entry:
        raise Refused("it has an empty address")
    host, port = _bracketed(entry) if entry.startswith("[") else _plain(entry)
    return _checked_host(host, entry), _checked_port(port, entry)


def _bracketed(entry: str) -> tuple[str, str]:
    host, bracket, rest = entry[1:].partition("]")
    if not bracket or (rest and not rest.startswith(":")):
        raise Refused(f"{_without_login(entry)} is not an IPv6 address in brackets")
    return host, rest[1:] if rest else str(DEFAULT_PORT)


def _plain(entry: str) -> tuple[str, str]:
    if ";" in entry:
        raise Refused(f"{_without_login(entry)}: separate addresses with commas")
    if "://" in entry:
        raise Refused(f"{_without_login(entry)}: omit the scheme")
    host, colon, port = entry.rpartition(":")
    if not colon:
        return entry, str(DEFAULT_PORT)
    if ":" in host:
        raise Refused(f"{_without_login(entry)}: put an IPv6 address in brackets")
    return host, port


def _checked_host(host: str, entry: str) -> str:
    valid = _is_ipv6(host) if ":" in host else _NAME.fullmatch(host) is not None
    if not valid:
        raise Refused(f"{_without_login(entry)} has no valid host name or IP address")
    return host


def _is_ipv6(host: str) -> bool:
    import socket  # takes 3 ms, so only producers that connect import it

    try:
        socket.inet_pton(socket.AF_INET6, host.partition("%")[0])
    except OSError:
        return False
    return True


def _checked_port(port: str, entry: str) -> int:
    number = int(port) if _PORT.fullmatch(port) else 0
    if not 1 <= number <= MAX_PORT:
        raise Refused(f"{_without_login(entry)} has no port from 1 to {MAX_PORT}")
    return number


def _without_login(entry: str) -> str:
    """The entry quoted, without the part before an ``@``, which may be a password."""
    return repr(entry.rpartition("@")[2][:100])
