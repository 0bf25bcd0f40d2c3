"""Transactions that a coordinator is being asked about before their first batch is appended."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, eq=False)
class VerificationGuard:
    """Stands for one question to the coordinator; worth nothing once the transaction has ended."""

    asked_ms: int


class Verifications:
    """The guards of one partition, by producer id. Not thread-safe: the partition's lock.

    A producer's request may be delayed: the coordinator finds that its transaction is open, the
    transaction is aborted, and then the batch is appended. It would begin a transaction that
    nobody ends. The marker takes the guard away, and the append is refused (KIP-890).
    """

    def __init__(self) -> None:
        self._guards: dict[int, VerificationGuard] = {}

    def begin(self, producer_id: int, now_ms: int) -> VerificationGuard:
        """The guard of a producer, made unless there is one."""
        return self._guards.setdefault(producer_id, VerificationGuard(now_ms))

    def hold(self, producer_id: int, guard: VerificationGuard | None) -> bool:
        """Whether the guard is still worth something."""
        return guard is not None and self._guards.get(producer_id) is guard

    def end(self, producer_id: int) -> None:
        """The producer's transaction has begun here, or has ended."""
        self._guards.pop(producer_id, None)

    def expire(self, oldest_ms: int) -> None:
        """Forget what was asked before then."""
        self._guards = {p: g for p, g in self._guards.items() if g.asked_ms >= oldest_ms}
