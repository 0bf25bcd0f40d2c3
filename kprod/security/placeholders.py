"""Placeholders in options, for values in the environment or in files."""

from __future__ import annotations

import re

from kprod.config.java_properties import java_properties
from kprod.config.secret import Secret
from kprod.errors import ConfigError
from kprod.security import FromEnvironment, FromFile

_PLACEHOLDER = re.compile(r"\$\{(env|file):([^}]+)\}")


def filled(text: str) -> str:
    """The text with placeholders replaced.

    ``${env:NAME}`` is replaced by an environment variable, ``${file:PATH}`` by the text of a file,
    and ``${file:PATH:KEY}`` by the value of ``KEY`` in a properties file (as with Kafka's
    FileConfigProvider, KIP-297). Raises ConfigError, whose text names the source, but never
    contains its content.
    """
    return _PLACEHOLDER.sub(_found, text)


def has_placeholder(value: object) -> bool:
    """Whether ``value`` contains a placeholder."""
    return isinstance(value, str) and _PLACEHOLDER.search(value) is not None


def _found(match: re.Match[str]) -> str:
    kind, where = match.groups()
    if kind == "env":
        return FromEnvironment(where)()
    path, colon, key = where.rpartition(":")
    if not colon:
        return FromFile(where)()
    found = _property(path, key)
    if isinstance(found, ConfigError):
        raise found
    return found.reveal()


def _property(path: str, key: str) -> Secret | ConfigError:
    """The value, or an error. The traceback of an exception raised here could show the file."""
    text = FromFile(path)()
    try:
        found = java_properties(text)
    except ValueError as error:
        return ConfigError(f"{path!r} is not a properties file: {error}")
    return Secret(found[key]) if key in found else ConfigError(f"there is no {key!r} in {path!r}")
