"""Asking for the addresses of a name without waiting: the system's resolver may take long."""

from __future__ import annotations

import threading
from collections.abc import Callable

from kprod.transport.tcp_transport import Address


class NameLookup:
    """One question, asked in a daemon thread that ends with the answer.

    The thread holds no lock of ours, so a fork or the interpreter's exit may come at any time.
    """

    def __init__(self, ask: Callable[[], list[Address]], answered: Callable[[], None]) -> None:
        self._ask = ask
        self._answered = answered
        self._outcome: list[Address] | Exception | None = None

    def start(self, name: str) -> None:
        """Ask, in a thread of that name. Raises RuntimeError when there can be no more threads."""
        threading.Thread(target=self._run, name=name, daemon=True).start()

    def _run(self) -> None:
        try:
            self._outcome = self._ask()
        except Exception as error:
            self._outcome = error
        self._answered()

    @property
    def done(self) -> bool:
        """True once there is an answer. Any thread."""
        return self._outcome is not None

    def addresses(self) -> list[Address]:
        """The answer, once ``done``; raises what the resolver raised."""
        if self._outcome is None:
            raise AssertionError("the resolver has not answered")
        if isinstance(self._outcome, Exception):
            raise self._outcome
        return self._outcome


class NameLookups:
    """At most one lookup of a name at a time, whoever asks. Used by one thread.

    ``resolver`` may block and raise anything; ``answered`` is called after each answer, in the
    lookup's thread, for as long as one is under way, even when nobody is interested any more.
    """

    def __init__(
        self,
        resolver: Callable[[str, int], list[Address]],
        answered: Callable[[], None],
    ) -> None:
        self._resolver = resolver
        self._answered = answered
        self._latest: dict[tuple[str, int], NameLookup] = {}

    def ask(self, host: str, port: int) -> NameLookup:
        """A lookup that is under way: a new one, unless the same is asked already."""
        lookup = self._latest.get((host, port))
        if lookup is None or lookup.done:
            lookup = NameLookup(lambda: self._resolver(host, port), self._answered)
            lookup.start(f"kprod-resolver-{host}")
            self._latest[host, port] = lookup
        return lookup
