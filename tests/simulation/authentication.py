"""Connections that have to agree on who is who before bytes may flow, and do not always."""

from __future__ import annotations

import random

from kprod.errors import ConnectionLost, KprodError, TlsAuthenticationError
from kprod.transport.base import Readiness
from tests.simulation.transport import SimTransport
from tests.simulation.wires import Wires

STEPS = 3
FAILING = 0.3


class Authority:
    """Makes transports that take ``STEPS`` messages to come up. ``left``: failures to come.

    A connection fails in the middle of that: by a refusal, or because the peer is gone.
    """

    def __init__(self, seed: int, failures: int) -> None:
        self._dice = random.Random(seed)
        self.left = failures
        self.refused = 0
        self.lost = 0

    def transport(self, wires: Wires, number: int, node_id: int, name: str) -> SimTransport:
        return AuthenticatingTransport(wires, number, node_id, name, self)

    def failure(self, name: str) -> KprodError | None:
        """What becomes of the next message."""
        if not self.left or self._dice.random() >= FAILING:
            return None
        self.left -= 1
        if self._dice.random() < 0.5:
            self.refused += 1
            return TlsAuthenticationError(f"no TLS with {name}: the certificate has expired")
        self.lost += 1
        return ConnectionLost(f"{name} ended the connection during the TLS handshake")


class AuthenticatingTransport(SimTransport):
    """Exchanges messages with the peer once it is connected, each a way there and a way back."""

    def __init__(
        self, wires: Wires, number: int, node_id: int, name: str, authority: Authority
    ) -> None:
        super().__init__(wires, number, node_id, name)
        self._authority = authority
        self._steps = STEPS
        self._waits = False  # for the peer's message
        self._refusal: KprodError | None = None

    def advance(self) -> bool:
        if self._refusal is not None:
            raise self._refusal
        if not super().advance():
            return False
        if self._steps and not self._waits:
            self._refusal = self._authority.failure(self.name)
            if self._refusal is not None:
                raise self._refusal
            self._waits = True
            self._wires.events.after(2 * self._wires.latency(), self._heard)
        return not self._steps

    def _heard(self) -> None:
        self._steps -= 1
        self._waits = False

    def readiness(self) -> Readiness | None:
        found = super().readiness()
        if found is None or (self._waits and not self._failure):
            return None
        return found
