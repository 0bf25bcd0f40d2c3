"""What the broker knows of the client behind one connection."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Final

from kprod.broker.listener import Listener

ANONYMOUS: Final = "User:ANONYMOUS"


@dataclass(slots=True)
class Session:
    """The state of one connection across its requests.

    A connection has at most one request in progress, so handlers change a session without a
    lock. ``authentication`` is whatever the handlers of SASL keep from one round to the next. A
    login holds until ``expires``, on the broker's monotonic clock.
    """

    listener: Listener = field(default_factory=Listener)
    peer: str = ""
    principal: str = ANONYMOUS
    authenticated: bool = True
    authentication: Any = None
    expires: float = float("inf")

    @classmethod
    def begin(cls, listener: Listener, peer: str) -> Session:
        """The session of a connection that was just accepted."""
        return cls(listener, peer, authenticated=not listener.authenticates)
