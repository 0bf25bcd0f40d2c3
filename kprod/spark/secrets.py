"""``${env:NAME}`` and ``${file:PATH:KEY}``: secrets that only the executors know."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from kprod.errors import ConfigError
from kprod.security import FromEnvironment, FromFile

ELSEWHERE = re.compile(r"\$\{(env|file):([^}]+)\}")


def resolved(options: Mapping[str, Any]) -> dict[str, Any]:
    """The options, and in their texts what the placeholders stand for. In the worker only.

    ``${env:NAME}`` is an environment variable of the worker, ``${file:PATH}`` the text of a file
    there, ``${file:PATH:KEY}`` the value of ``KEY`` in a properties file (as with Kafka's
    FileConfigProvider, KIP-297). Raises ConfigError, naming the place and never what is in it.
    """
    return {
        name: ELSEWHERE.sub(_found, value) if isinstance(value, str) else value
        for name, value in options.items()
    }


def has_placeholder(value: Any) -> bool:
    """Whether a part of ``value`` is written elsewhere."""
    return isinstance(value, str) and ELSEWHERE.search(value) is not None


def _found(match: re.Match[str]) -> str:
    kind, where = match.groups()
    if kind == "env":
        return FromEnvironment(where)()
    path, colon, key = where.rpartition(":")
    return _property(path, key) if colon else FromFile(where)()


def _property(path: str, key: str) -> str:
    for line in FromFile(path)().splitlines():
        name, equals, value = line.partition("=")
        if equals and name.strip() == key and not line.lstrip().startswith(("#", "!")):
            return value.strip()
    raise ConfigError(f"there is no {key!r} in {path!r}")
