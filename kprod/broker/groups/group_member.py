"""One member of a consumer group."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

Protocols = tuple[tuple[str, bytes], ...]
"""Names of assignment strategies with the member's subscription for each, best first."""


@dataclass(slots=True)
class GroupMember:
    """A consumer, as it joined. Time-outs are in seconds, deadlines of the monotonic clock.

    ``join`` and ``sync`` hold what an answer is given to while the member waits for one.
    """

    member_id: str
    instance_id: str | None
    client_id: str
    client_host: str
    session_timeout: float
    rebalance_timeout: float
    protocols: Protocols
    assignment: bytes = b""
    session_deadline: float = 0.0
    join: Any = field(default=None, repr=False)
    sync: Any = field(default=None, repr=False)

    @property
    def waits(self) -> bool:
        """Whether it is the member that waits for us: it is not expected to send heartbeats."""
        return self.join is not None or self.sync is not None

    def refresh(self, now: float) -> None:
        """The member was heard of."""
        self.session_deadline = now + self.session_timeout

    def metadata(self, protocol: str | None) -> bytes:
        """Its subscription for one of the strategies."""
        return dict(self.protocols).get(protocol or "", b"")

    def vote(self, candidates: set[str]) -> str:
        """The strategy it likes best of some that every member has."""
        return next(name for name, _ in self.protocols if name in candidates)
