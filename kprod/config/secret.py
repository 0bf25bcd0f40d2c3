"""A password, key or token that is never shown."""

from __future__ import annotations

from typing import Any

from kprod.errors import ConfigError


class Secret:
    """Holds a secret text, or a callable that returns it. Immutable, thread-safe.

    ``source`` is the text or the callable. ``repr`` and ``str`` are three stars. A callable can be
    pickled if it supports that. A text cannot be pickled: ``pickle.dumps`` raises a TypeError that
    names ``option``. With ``may_be_pickled`` it can: this is for texts that are only hidden from
    logs, or that Spark sends to its executors.
    """

    __slots__ = ("_may_be_pickled", "_option", "_source")

    def __init__(
        self, source: object, option: str = "a secret", may_be_pickled: bool = False
    ) -> None:
        self._source = source
        self._option = option
        self._may_be_pickled = may_be_pickled

    @property
    def is_asked_for(self) -> bool:
        """Whether the source is a callable, which may return a different text each time."""
        return callable(self._source)

    def reveal(self) -> str:
        """The text. Raises ConfigError if the source is, or returns, anything else."""
        text = self._source() if callable(self._source) else self._source
        if isinstance(text, str):
            return text
        kind = type(text).__name__
        del text  # a traceback may show local variables
        raise ConfigError(f"{self._option}: expected text, got {kind}")

    def __repr__(self) -> str:
        return "***"

    def __copy__(self) -> Secret:
        return self

    def __deepcopy__(self, memo: object) -> Secret:
        return self

    def __reduce__(self) -> tuple[Any, ...]:
        if self.is_asked_for or self._may_be_pickled:
            return Secret, (self._source, self._option, self._may_be_pickled)
        raise TypeError(
            f"{self._option} was given as text, and secrets are not pickled: pass"
            " kprod.security.FromEnvironment or FromFile, which read it where the pickle is"
            " loaded, or make the producer there"
        )


def exposed(value: Any) -> Any:
    """The text or the callable in a Secret; any other value unchanged."""
    return value._source if isinstance(value, Secret) else value
