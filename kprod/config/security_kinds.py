"""Kinds of values that only options of security have."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from typing import Any

from kprod.config.kinds import Refused
from kprod.config.safe_repr import safe_repr
from kprod.config.secret import Secret, exposed

TLS_VERSIONS = {"tlsv1.2": "TLSv1.2", "tlsv1.3": "TLSv1.3"}
"""Oldest first."""

_PAIR = re.compile(r"([A-Za-z]+)=([\x20-\x7e\t\r\n]*)")


class Text:
    """Text that is not empty, or nothing."""

    type_name = "str or None"

    def __init__(self, expected: str) -> None:
        self.expected = f"{expected}, or None"

    def convert(self, value: Any) -> str | None:
        if value is None:
            return None
        if not isinstance(value, str) or not value:
            raise Refused
        return value


class Url(Text):
    """An address that may hold a password: in its user part, or in its query."""

    def conceals(self, value: Any) -> bool:
        """Whether it holds one, as far as can be seen."""
        return not isinstance(value, str) or "@" in value or "?" in value

    def convert(self, value: Any) -> Any:
        super().convert(exposed(value))
        return value


class PathOrText(Text):
    """The path of a file, or what would be in it: PEM."""

    type_name = "str, path or None"

    def conceals(self, value: Any) -> bool:
        """Whether it is what would be in the file."""
        return not isinstance(value, os.PathLike) and not (
            isinstance(value, str) and not is_pem(value)
        )

    def convert(self, value: Any) -> Any:
        given = exposed(value)
        text = super().convert(os.fsdecode(given) if isinstance(given, os.PathLike) else given)
        return value if isinstance(value, Secret) else text


def is_pem(source: str) -> bool:
    """Whether it is PEM itself, and not the path of a file."""
    return "-----BEGIN " in source or "\n" in source


_OLD_VERSIONS = ("sslv2hello", "sslv3", "tlsv1", "tlsv1.1")


class TlsVersions:
    """Versions of TLS as Java lists them, kept in order; those that are too old are passed over."""

    type_name = "list of str, str or None"
    expected = '"TLSv1.2", "TLSv1.3", both of them in a list or joined by a comma, or None'

    def convert(self, value: Any) -> tuple[str, ...] | None:
        if value is None:
            return None
        names = value.split(",") if isinstance(value, str) else value
        if not isinstance(names, list | tuple) or not all(isinstance(n, str) for n in names):
            raise Refused
        wanted = {name.strip().lower(): name for name in names}
        for name in wanted.keys() - {*_OLD_VERSIONS, *TLS_VERSIONS}:
            raise Refused(f"got {safe_repr(wanted[name])}")
        found = tuple(kept for name, kept in TLS_VERSIONS.items() if name in wanted)
        if not found:
            raise Refused("it names none of these")
        return found


class HostnameCheck:
    """True or False, or what Java and librdkafka call ``endpoint.identification.algorithm``."""

    type_name = "bool"
    expected = 'True or False; also "https" and "none"'

    def convert(self, value: Any) -> bool:
        if isinstance(value, bool):
            return value
        words = {"https": True, "true": True, "none": False, "false": False, "": False}
        if not isinstance(value, str) or value.strip().lower() not in words:
            raise Refused
        return words[value.strip().lower()]


class Plugged:
    """An object of the application's, as far as ``fits`` tells it is one; or None."""

    def __init__(self, type_name: str, expected: str, *methods: str) -> None:
        self.type_name = f"{type_name} or None"
        self.expected = f"{expected}, or None"
        self._methods = methods

    def convert(self, value: Any) -> Any:
        if value is None:
            return None
        has = any(callable(getattr(value, method, None)) for method in self._methods)
        if isinstance(value, type):
            raise Refused("it is a class: pass an instance")
        if not has:
            raise Refused
        return value


class Extensions:
    """Names and values that travel with a token (KIP-342), kept as a tuple of pairs."""

    type_name = "dict, str or None"
    expected = 'a dict of str, "name=value,name=value", or None'

    def convert(self, value: Any) -> tuple[tuple[str, str], ...]:
        if value is None or value == "":
            return ()
        if isinstance(value, str):
            value = dict(_halves(pair) for pair in value.split(","))
        if not isinstance(value, Mapping):
            raise Refused
        for name, text in value.items():
            if not isinstance(name, str) or not isinstance(text, str):
                raise Refused
            if name == "auth" or not _PAIR.fullmatch(f"{name}={text}"):
                raise Refused(f"{name!r} is not an extension RFC 7628 allows")
        return tuple(value.items())


def _halves(pair: str) -> tuple[str, str]:
    name, equals, text = pair.strip().partition("=")
    if not equals:
        raise Refused
    return name, text
