"""A password or token: told to who asks for it, and shown to nobody."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NoReturn

from kprod.config.kinds import Refused
from kprod.errors import ConfigError


class Secret:
    """Keeps a text, or asks for it whenever it is needed. Immutable, any thread.

    Its ``repr`` and ``str`` are three stars, and it goes into no pickle.
    """

    __slots__ = ("_source",)

    def __init__(self, source: str | Callable[[], str]) -> None:
        self._source = source

    def reveal(self) -> str:
        """The text. Raises ConfigError when whoever was asked answers something else."""
        text = self._source() if callable(self._source) else self._source
        if not isinstance(text, str):
            raise ConfigError(f"a secret is text; what tells it returned {type(text).__name__}")
        return text

    def __repr__(self) -> str:
        return "***"

    def __reduce__(self) -> NoReturn:
        raise TypeError("a secret is not written into pickles")


class SecretText:
    """Text, or a callable that tells it; kept as a ``Secret``."""

    type_name = "str, callable or None"
    expected = (
        "text, a callable that returns it (kprod.security.FromFile, FromEnvironment), or None"
    )

    def convert(self, value: Any) -> Secret | None:
        if value is None:
            return None
        if isinstance(value, type) or not (isinstance(value, str) or callable(value)):
            raise Refused
        if value == "":
            raise Refused("it is empty")
        return Secret(value)
