"""Credentials, SASL and TLS, and the places from which secrets are read."""

from __future__ import annotations

import os

from kprod.errors import ConfigError


class FromEnvironment:
    """A secret that is read from an environment variable. Thread-safe."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __call__(self) -> str:
        """Return the value. Raises ConfigError if the variable is not set or is empty."""
        value = os.environ.get(self._name)
        if not value:
            raise ConfigError(f"the environment variable {self._name} is not set")
        return value

    def __repr__(self) -> str:
        return f"FromEnvironment({self._name!r})"


class FromFile:
    """A secret that is read from a file, without the newline at its end. Thread-safe.

    The file is read for every connection. So new connections notice if the file has changed, for
    example if it is a mounted secret. As ``sasl_jaas_config``, it is read once: for a password that
    changes, use ``sasl_plain_password``.
    """

    _path: str = ""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self._path = os.fspath(path)

    def __call__(self) -> str:
        """Return the text. Raises ConfigError if the file cannot be read."""
        try:
            with open(self._path, encoding="utf-8") as file:
                return file.read().rstrip("\r\n")
        except OSError as error:
            problem = str(error)
        except UnicodeDecodeError:  # the exception contains the file's bytes
            problem = "it is not text in UTF-8"
        raise ConfigError(f"cannot read the secret in {self._path!r}: {problem}")

    def __repr__(self) -> str:
        return f"FromFile({self._path!r})"


__all__ = ["FromEnvironment", "FromFile"]
