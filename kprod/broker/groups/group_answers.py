"""What the group coordinator answers, and to whom."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

from kio.schema.errors import ErrorCode

from kprod.broker.groups.group_member import Protocols


@dataclass(frozen=True, slots=True, kw_only=True)
class JoinRequest:
    """JoinGroup, independent of its version. Time-outs in seconds."""

    member_id: str
    instance_id: str | None
    client_id: str
    client_host: str
    session_timeout: float
    rebalance_timeout: float
    protocol_type: str
    protocols: Protocols
    knows_required_ids: bool
    """Version 4 and later: a new member is told its id first, and joins with it (KIP-394)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class JoinAnswer:
    """JoinGroup's answer. ``members``, for the leader: id, instance id and subscription."""

    error: ErrorCode = ErrorCode.none
    generation: int = -1
    protocol_type: str | None = None
    protocol: str | None = None
    leader: str = ""
    member_id: str = ""
    members: tuple[tuple[str, str | None, bytes], ...] = ()
    skip_assignment: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class SyncRequest:
    """SyncGroup, independent of its version. ``assignments`` come from the leader only."""

    generation: int
    member_id: str
    instance_id: str | None = None
    protocol_type: str | None = None
    protocol: str | None = None
    assignments: tuple[tuple[str, bytes], ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class SyncAnswer:
    """SyncGroup's answer: what the member is to consume."""

    error: ErrorCode = ErrorCode.none
    protocol_type: str | None = None
    protocol: str | None = None
    assignment: bytes = b""


JoinReply = Callable[[JoinAnswer], None]
SyncReply = Callable[[SyncAnswer], None]


class Answered(NamedTuple):
    """An answer to be given once the coordinator's lock is free."""

    give: Callable[[], None]
