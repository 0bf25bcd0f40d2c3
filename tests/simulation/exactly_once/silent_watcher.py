"""Watches the wires for bytes that change, and for nothing else."""

from __future__ import annotations

from collections.abc import Callable

from tests.simulation.transport import SimTransport
from tests.simulation.wires import Answer


class SilentWatcher:
    """A ``Watcher``. What requests say is judged by what brokers make of it."""

    def __init__(self, violated: Callable[[str], None]) -> None:
        self._violated = violated

    def dialled(self, transport: SimTransport) -> None:
        """A connection is wanted."""

    def sent(self, transport: SimTransport, frame: bytes) -> None:
        """A request leaves."""

    def changed_on_the_way(self, transport: SimTransport) -> None:
        self._violated(f"bytes changed while they were sent on {transport}")

    def answered(self, transport: SimTransport, answer: Answer) -> None:
        """A response lies in the socket."""

    def stray(self, transport: SimTransport) -> None:
        """Something else lies there."""

    def unread(self, transport: SimTransport, answers: int) -> None:
        """They do no more."""

    def ended(self, transport: SimTransport) -> None:
        """The client has closed."""
