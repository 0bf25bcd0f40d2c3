"""The state of one consumer group: its members and its generation."""

from __future__ import annotations

import enum
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any, TypeVar

from kio.schema.errors import ErrorCode

from kprod.broker.protocol.messages import Message


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupConfig:
    """Options of consumer groups. Two defaults differ from Kafka's.

    ``initial_rebalance_delay_ms`` is 0, because a delay would only slow down tests.
    ``offsets_topic_partitions`` is 1 instead of 50.
    """

    min_session_timeout_ms: int = 6_000
    max_session_timeout_ms: int = 1_800_000
    initial_rebalance_delay_ms: int = 0
    offsets_retention_ms: int = 7 * 24 * 3_600_000
    offset_metadata_max_bytes: int = 4096
    max_size: int = 2**31 - 1
    offsets_topic_partitions: int = 1


Protocols = tuple[tuple[str, bytes], ...]
"""Names of assignment strategies with the member's subscription for each, best first."""


@dataclass(frozen=True, slots=True, kw_only=True)
class JoinRequest:
    """The content of a JoinGroup request of any version. Time-outs are in seconds."""

    member_id: str
    instance_id: str | None
    client_id: str
    client_host: str
    session_timeout: float
    rebalance_timeout: float
    protocol_type: str
    protocols: Protocols
    knows_required_ids: bool = False
    """True from version 4 on: a new member first gets an id, and then joins with it (KIP-394)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class JoinAnswer:
    """The fields of a JoinGroup response. ``members`` is empty except for the leader."""

    error_code: ErrorCode = ErrorCode.none
    generation_id: int = -1
    protocol_type: str | None = None
    protocol_name: str | None = None
    leader: str = ""
    member_id: str = ""
    members: tuple[Message, ...] = ()
    skip_assignment: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class SyncRequest:
    """The content of a SyncGroup request of any version. Only the leader sends ``assignments``."""

    generation: int
    member_id: str
    instance_id: str | None = None
    protocol_type: str | None = None
    protocol: str | None = None
    assignments: tuple[tuple[str, bytes], ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class SyncAnswer:
    """The fields of a SyncGroup response. ``assignment`` is that of one member."""

    error_code: ErrorCode = ErrorCode.none
    protocol_type: str | None = None
    protocol_name: str | None = None
    assignment: bytes = b""


_Answer = TypeVar("_Answer")
JoinReply = Callable[[JoinAnswer], None]
SyncReply = Callable[[SyncAnswer], None]


@dataclass(slots=True)
class GroupMember:
    """A consumer and its last JoinGroup request. ``session_deadline`` is monotonic time.

    ``join`` and ``sync`` are the callbacks for requests that have not been answered yet, or None.
    """

    member_id: str
    joined: JoinRequest
    assignment: bytes = b""
    session_deadline: float = 0.0
    join: Any = field(default=None, repr=False)
    sync: Any = field(default=None, repr=False)

    @property
    def waits(self) -> bool:
        """Whether the member waits for an answer. While it waits, it need not send heartbeats."""
        return self.join is not None or self.sync is not None

    def refresh(self, now: float) -> None:
        """Restart the member's session time-out."""
        self.session_deadline = now + self.joined.session_timeout

    def metadata(self, protocol: str | None) -> bytes:
        """Return the member's subscription for an assignment strategy, or nothing (``b""``)."""
        return dict(self.joined.protocols).get(protocol or "", b"")

    def vote(self, candidates: set[str]) -> str:
        """Return the assignment strategy that the member prefers among the ``candidates``."""
        return next(name for name, _ in self.joined.protocols if name in candidates)


class GroupState(enum.Enum):
    """The states of a group, named as in Kafka."""

    EMPTY = "Empty"
    PREPARING_REBALANCE = "PreparingRebalance"
    COMPLETING_REBALANCE = "CompletingRebalance"
    STABLE = "Stable"
    DEAD = "Dead"


class ConsumerGroup:
    """The members and the generation of a group (Kafka: ClassicGroup). Not thread-safe.

    This class does no I/O and has no clock. It collects the answers to members in ``answers``; the
    caller sends them after releasing its locks. If ``changed`` is true, the group has to be written
    to the offsets topic.
    """

    def __init__(self, group_id: str) -> None:
        self.group_id = group_id
        self.state = GroupState.EMPTY
        self.generation = 0
        self.protocol_type: str | None = None
        self.protocol: str | None = None
        self.leader: str | None = None
        self.members: dict[str, GroupMember] = {}
        self.static_members: dict[str, str] = {}
        self.pending: dict[str, float] = {}
        """Ids that were assigned and have not joined yet, with their deadlines."""
        self.join_deadline: float | None = None
        self.sync_deadline: float | None = None
        self.earliest_end = 0.0
        """A group that was empty waits until then for more members."""
        self.answers: list[Callable[[], None]] = []
        self.changed = False

    # Answers -------------------------------------------------------------------------------

    def answer(self, reply: Callable[[_Answer], None], answer: _Answer) -> None:
        """Queue the answer to a JoinGroup or SyncGroup request."""
        self.answers.append(lambda: reply(answer))

    def refuse_sync(self, member: GroupMember, error: ErrorCode) -> None:
        """If the member waits for the answer to SyncGroup, answer with an error."""
        if member.sync is not None:
            self.answer(member.sync, SyncAnswer(error_code=error))
            member.sync = None

    def refuse(self, member: GroupMember, error: ErrorCode) -> None:
        """If the member waits for the answer to JoinGroup or SyncGroup, answer with an error."""
        if member.join is not None:
            self.answer(member.join, JoinAnswer(error_code=error, member_id=member.member_id))
            member.join = None
        self.refuse_sync(member, error)

    def current_join_answer(self, member: GroupMember) -> JoinAnswer:
        """Return the JoinGroup answer for a member. Only the leader's answer lists all members."""
        listed = self.members.values() if member.member_id == self.leader else ()
        return JoinAnswer(
            generation_id=self.generation,
            protocol_type=self.protocol_type,
            protocol_name=self.protocol,
            leader=self.leader or "",
            member_id=member.member_id,
            members=tuple(
                {
                    "member_id": other.member_id,
                    "group_instance_id": other.joined.instance_id,
                    "metadata": other.metadata(self.protocol),
                }
                for other in listed
            ),
        )

    # Members -------------------------------------------------------------------------------

    def add(self, member: GroupMember) -> None:
        """Add a member. If the group has no leader, this member becomes the leader."""
        self.members[member.member_id] = member
        self.pending.pop(member.member_id, None)
        if member.joined.instance_id is not None:
            self.static_members[member.joined.instance_id] = member.member_id
        if self.leader is None:
            self.leader = member.member_id

    def remove(self, member: GroupMember, error: ErrorCode) -> None:
        """Remove a member, and answer its waiting requests with ``error``."""
        self.members.pop(member.member_id, None)
        if self.static_members.get(member.joined.instance_id or "") == member.member_id:
            del self.static_members[member.joined.instance_id or ""]
        if self.leader == member.member_id:
            self.leader = next(iter(self.members), None)
        self.refuse(member, error)

    def replace_static(self, member: GroupMember, member_id: str) -> None:
        """Give a new member id to a static member that has restarted. The old id is fenced."""
        leads = self.leader == member.member_id
        self.refuse(member, ErrorCode.fenced_instance_id)
        del self.members[member.member_id]
        member.member_id = member_id
        self.members[member_id] = member
        self.static_members[member.joined.instance_id or ""] = member_id
        if leads:
            self.leader = member_id

    def supports(self, protocol_type: str, protocols: Iterable[tuple[str, bytes]]) -> bool:
        """Whether a consumer may join: it must have a strategy that every member supports."""
        names = {name for name, _ in protocols}
        if not protocol_type or not names:
            return False
        if not self.members:
            return True
        return protocol_type == self.protocol_type and bool(names & self._candidates())

    def _candidates(self) -> set[str]:
        """Return the strategies that every member supports."""
        sets = [{name for name, _ in member.joined.protocols} for member in self.members.values()]
        return set.intersection(*sets) if sets else set()

    # Rebalances ----------------------------------------------------------------------------

    def prepare_rebalance(self, now: float, delay: float = 0.0) -> None:
        """Begin a rebalance, for which all members have to join again.

        Members that have not joined when the rebalance times out are removed, except static
        members. If the group was empty, it waits at least ``delay`` seconds for more members.
        """
        if self.state is GroupState.COMPLETING_REBALANCE:
            for member in self.members.values():
                member.assignment = b""
                self.refuse_sync(member, ErrorCode.rebalance_in_progress)
        timeout = max((m.joined.rebalance_timeout for m in self.members.values()), default=0.0)
        was_empty = self.state is GroupState.EMPTY
        self.state = GroupState.PREPARING_REBALANCE
        self.sync_deadline = None
        self.join_deadline = now + timeout
        self.earliest_end = now + delay if was_empty else now
        self.maybe_complete_join(now)

    def join_rebalance(self, now: float, delay: float = 0.0) -> None:
        """Let a member that has just joined take part in a rebalance.

        If no rebalance is in progress, one begins.
        """
        if self.state is GroupState.PREPARING_REBALANCE:
            self.maybe_complete_join(now)
        else:
            self.prepare_rebalance(now, delay)

    def maybe_complete_join(self, now: float) -> None:
        """End the join phase, unless further members are still expected to join."""
        if self.state is not GroupState.PREPARING_REBALANCE or now < self.earliest_end:
            return
        if not self.pending and self._all_joined():
            self.complete_join(now)

    def complete_join(self, now: float) -> None:
        """End the join phase, and begin the next generation.

        Members that have not joined are removed, except static members.
        """
        for member in list(self.members.values()):
            if member.join is None and member.joined.instance_id is None:
                self.remove(member, ErrorCode.unknown_member_id)
        self.join_deadline = None
        self.generation += 1
        self.changed = True
        if not self.members:
            self._become_empty()
            return
        leader = self.members.get(self.leader or "")
        if leader is None or leader.join is None:
            joined = (m.member_id for m in self.members.values() if m.join is not None)
            self.leader = next(joined, self.leader)
        self.protocol = self._elect()
        self.state = GroupState.COMPLETING_REBALANCE
        timeout = max(m.joined.rebalance_timeout for m in self.members.values())
        self.sync_deadline = now + timeout
        for member in self.members.values():
            if member.join is not None:
                self.answer(member.join, self.current_join_answer(member))
                member.join = None
                member.refresh(now)

    def _become_empty(self) -> None:
        self.state = GroupState.EMPTY
        self.protocol = self.leader = None
        self.sync_deadline = None

    def _elect(self) -> str:
        candidates = self._candidates()
        votes = Counter(member.vote(candidates) for member in self.members.values())
        return votes.most_common(1)[0][0]

    def assign(self, assignments: dict[str, bytes], now: float) -> None:
        """Store the assignment from the leader.

        Members that wait for their part of it get that part now; the others get it when they ask.
        """
        self.state = GroupState.STABLE
        self.changed = True
        for member in self.members.values():
            member.assignment = assignments.get(member.member_id, b"")
            if member.sync is not None:
                self.answer(member.sync, self.sync_answer(member))
                member.sync = None
                member.refresh(now)

    def sync_answer(self, member: GroupMember) -> SyncAnswer:
        """Return the SyncGroup answer with a member's current assignment."""
        return SyncAnswer(
            protocol_type=self.protocol_type,
            protocol_name=self.protocol,
            assignment=member.assignment,
        )

    # Time ----------------------------------------------------------------------------------

    def deadline(self) -> float | None:
        """Return when ``advance`` must be called next; None if nothing can time out."""
        times = list(self.pending.values())
        times += [m.session_deadline for m in self.members.values() if not m.waits]
        if self.join_deadline is not None:
            times.append(self.join_deadline)
            times += [self.earliest_end] if self._all_joined() else []
        if self.sync_deadline is not None:
            times.append(self.sync_deadline)
        return min(times, default=None)

    def _all_joined(self) -> bool:
        return all(member.join is not None for member in self.members.values())

    def advance(self, now: float) -> None:
        """Remove members whose session has timed out, and end phases that have timed out."""
        self.pending = {m: until for m, until in self.pending.items() if until > now}
        for member in list(self.members.values()):
            if not member.waits and member.session_deadline <= now:
                self.drop(member, now)
        if self.join_deadline is not None and self.join_deadline <= now:
            self.complete_join(now)
        self.maybe_complete_join(now)
        if self.sync_deadline is not None and self.sync_deadline <= now:
            self._end_sync_phase(now)

    def _end_sync_phase(self, now: float) -> None:
        """End a sync phase that has timed out. Members that have sent no SyncGroup are removed."""
        self.sync_deadline = None
        if self.state is GroupState.COMPLETING_REBALANCE:
            for member in list(self.members.values()):
                if member.sync is None:
                    self.remove(member, ErrorCode.unknown_member_id)
            self._after_removal(now)

    def drop(self, member: GroupMember, now: float) -> None:
        """Remove a member that has left or timed out. The other members rebalance."""
        self.remove(member, ErrorCode.unknown_member_id)
        self._after_removal(now)

    def _after_removal(self, now: float) -> None:
        if self.state in (GroupState.STABLE, GroupState.COMPLETING_REBALANCE):
            self.prepare_rebalance(now)
        else:
            self.maybe_complete_join(now)

    def resign(self, error: ErrorCode, now: float) -> None:
        """Answer all waiting requests with ``error``: this node no longer coordinates the group."""
        for member in self.members.values():
            member.refresh(now)
            self.refuse(member, error)
