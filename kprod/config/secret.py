"""A password, key or token: told to the code that needs it, and shown nowhere."""

from __future__ import annotations

from typing import Any

from kprod.errors import ConfigError


class Secret:
    """Keeps a text, or asks for it whenever it is needed. Immutable, any thread.

    Its ``repr`` and ``str`` are three stars. ``source`` is the text or a callable that returns it.
    A pickle takes the callable, as far as that can be pickled; it never takes a text, and
    ``pickle.dumps`` raises TypeError then, naming ``option``.
    """

    __slots__ = ("_option", "_source")

    def __init__(self, source: object, option: str = "a secret") -> None:
        self._source = source
        self._option = option

    @property
    def is_asked_for(self) -> bool:
        """Whether a callable tells it, perhaps each time another one."""
        return callable(self._source)

    def reveal(self) -> str:
        """The text. Raises ConfigError when the source is, or returns, something else."""
        text = self._source() if callable(self._source) else self._source
        if not isinstance(text, str):
            raise ConfigError(f"{self._option} is text; what tells it is a {type(text).__name__}")
        return text

    def __repr__(self) -> str:
        return "***"

    def __copy__(self) -> Secret:
        return self

    def __deepcopy__(self, memo: object) -> Secret:
        return self

    def __reduce__(self) -> tuple[Any, ...]:
        if self.is_asked_for:
            return Secret, (self._source, self._option)
        raise TypeError(
            f"{self._option} was given as text, and a pickle holds no secrets: pass"
            " kprod.security.FromEnvironment or FromFile, which look it up where the pickle is"
            " loaded, or make the producer there"
        )


def exposed(value: Any) -> Any:
    """The text or the callable within a Secret; everything else as it is."""
    return value._source if isinstance(value, Secret) else value
