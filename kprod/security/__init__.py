"""Credentials, SASL, and what connections are made of; where a secret is read from."""

from __future__ import annotations

import os

from kprod.errors import ConfigError


class FromEnvironment:
    """The value of an environment variable. Any thread."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __call__(self) -> str:
        """Raises ConfigError when it is not set."""
        value = os.environ.get(self._name)
        if not value:
            raise ConfigError(f"the environment variable {self._name} is not set")
        return value

    def __repr__(self) -> str:
        return f"FromEnvironment({self._name!r})"


class FromFile:
    """The text of a file, without the end of its last line. Any thread.

    It is read for every connection, so what replaces a file (a mounted secret, say) counts at once.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self._path = os.fspath(path)

    def __call__(self) -> str:
        """Raises ConfigError when it cannot be read."""
        try:
            with open(self._path, encoding="utf-8") as file:
                return file.read().rstrip("\r\n")
        except (OSError, UnicodeDecodeError) as error:
            raise ConfigError(f"cannot read the secret in {self._path!r}: {error}") from None

    def __repr__(self) -> str:
        return f"FromFile({self._path!r})"


__all__ = ["FromEnvironment", "FromFile"]
