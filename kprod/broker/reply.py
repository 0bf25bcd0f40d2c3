"""The one answer of one request, which comes while its handler runs or after that."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import Protocol

from kprod.broker.connection import Connection
from kprod.broker.stream import Part


class Reply(Protocol):
    """Takes the answer: one of the two, once. Any thread."""

    def send(self, parts: Sequence[Part], *, close: bool = False) -> None:
        """The response with its size; empty for none. ``close`` ends the connection after it."""
        ...

    def hang_up(self, reason: str) -> None:
        """Close the connection instead of answering."""
        ...


class Exchange:
    """The ``Reply`` of a connection. ``finish`` sends an answer that came after ``leave``."""

    def __init__(self, connection: Connection, finish: Callable[[Connection], None]) -> None:
        self._connection = connection
        self._finish = finish
        self._lock = threading.Lock()  # guards the two below
        self._answered = False
        self._left = False

    def send(self, parts: Sequence[Part], *, close: bool = False) -> None:
        """See ``Reply``."""
        self._answer(lambda: self._connection.answer(parts, close=close))

    def hang_up(self, reason: str) -> None:
        """See ``Reply``."""
        self._answer(lambda: self._connection.hang_up(reason))

    def _answer(self, give: Callable[[], None]) -> None:
        with self._lock:
            if self._answered:
                raise RuntimeError("a request was answered twice")
            self._answered = True
            late = self._left
            # While the request is in progress the connection is whoever answers's.
            try:
                give()
            except Exception:  # no memory for it
                self._connection.give_up()
        if late:
            self._finish(self._connection)

    def leave(self) -> bool:
        """The handler returned: whether the answer is there. If not, it is sent when it comes."""
        with self._lock:
            self._left = True
            return self._answered
