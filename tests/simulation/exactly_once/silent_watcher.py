"""Watches the wires for bytes that change, and for nothing else."""

from __future__ import annotations

from collections.abc import Callable

from tests.simulation.transport import SimTransport
from tests.simulation.wires import Watcher


class SilentWatcher(Watcher):
    """What requests say is judged by what brokers make of it."""

    def __init__(self, violated: Callable[[str], None]) -> None:
        self._violated = violated

    def changed_on_the_way(self, transport: SimTransport) -> None:
        self._violated(f"bytes changed while they were sent on {transport}")
