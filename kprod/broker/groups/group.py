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
    """Options of consumer groups: Kafka's defaults, except for two.

    There is no initial rebalance delay, which would only slow down tests.
    ``offsets_topic_partitions`` is 1 here and 50 in Kafka.
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
    """JoinGroup, independent of its version. Time-outs in seconds."""

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
    """JoinGroup's answer, under the names of its fields. ``members`` are for the leader."""

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
    """SyncGroup, independent of its version. ``assignments`` come from the leader only."""

    generation: int
    member_id: str
    instance_id: str | None = None
    protocol_type: str | None = None
    protocol: str | None = None
    assignments: tuple[tuple[str, bytes], ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class SyncAnswer:
    """SyncGroup's answer, with the names of its fields: the member's assignment."""

    error_code: ErrorCode = ErrorCode.none
    protocol_type: str | None = None
    protocol_name: str | None = None
    assignment: bytes = b""


_Answer = TypeVar("_Answer")
JoinReply = Callable[[JoinAnswer], None]
SyncReply = Callable[[SyncAnswer], None]


@dataclass(slots=True)
class GroupMember:
    """A consumer, as it last joined. Deadlines are times of the monotonic clock.

    ``join`` and ``sync`` are callbacks for answers that the member waits for.
    """

    member_id: str
    joined: JoinRequest
    assignment: bytes = b""
    session_deadline: float = 0.0
    join: Any = field(default=None, repr=False)
    sync: Any = field(default=None, repr=False)

    @property
    def waits(self) -> bool:
        """Whether the member waits for an answer, and so need not send heartbeats."""
        return self.join is not None or self.sync is not None

    def refresh(self, now: float) -> None:
        """Start the session time-out again, because the member has sent a request."""
        self.session_deadline = now + self.joined.session_timeout

    def metadata(self, protocol: str | None) -> bytes:
        """The member's subscription for one of the strategies."""
        return dict(self.joined.protocols).get(protocol or "", b"")

    def vote(self, candidates: set[str]) -> str:
        """The strategy that the member prefers among the ``candidates``."""
        return next(name for name, _ in self.joined.protocols if name in candidates)


class GroupState(enum.Enum):
    """The states of a group, with Kafka's names."""

    EMPTY = "Empty"
    PREPARING_REBALANCE = "PreparingRebalance"
    COMPLETING_REBALANCE = "CompletingRebalance"
    STABLE = "Stable"
    DEAD = "Dead"


class ConsumerGroup:
    """Members and generations (Kafka: ClassicGroup). Does no I/O, has no clock; not thread-safe.

    Answers are collected in ``answers``; the caller sends them after releasing its locks.
    ``changed``: the group has to be written to the offsets topic.
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
        """Queue the answer to a join or a sync."""
        self.answers.append(lambda: reply(answer))

    def refuse_sync(self, member: GroupMember, error: ErrorCode) -> None:
        """Fail the member's pending sync, if any."""
        if member.sync is not None:
            self.answer(member.sync, SyncAnswer(error_code=error))
            member.sync = None

    def refuse(self, member: GroupMember, error: ErrorCode) -> None:
        """Fail the member's pending join and sync."""
        if member.join is not None:
            self.answer(member.join, JoinAnswer(error_code=error, member_id=member.member_id))
            member.join = None
        self.refuse_sync(member, error)

    def current_join_answer(self, member: GroupMember) -> JoinAnswer:
        """The answer to a member of the current generation; the leader gets all members."""
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
        """Add a member; the first one leads."""
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
        """A static member has restarted: it gets a new id, and its old id is fenced."""
        leads = self.leader == member.member_id
        self.refuse(member, ErrorCode.fenced_instance_id)
        del self.members[member.member_id]
        member.member_id = member_id
        self.members[member_id] = member
        self.static_members[member.joined.instance_id or ""] = member_id
        if leads:
            self.leader = member_id

    def supports(self, protocol_type: str, protocols: Iterable[tuple[str, bytes]]) -> bool:
        """Whether a consumer with these strategies could be a member."""
        names = {name for name, _ in protocols}
        if not protocol_type or not names:
            return False
        if not self.members:
            return True
        return protocol_type == self.protocol_type and bool(names & self._candidates())

    def _candidates(self) -> set[str]:
        """The strategies that every member supports."""
        sets = [{name for name, _ in member.joined.protocols} for member in self.members.values()]
        return set.intersection(*sets) if sets else set()

    # Rebalances ----------------------------------------------------------------------------

    def prepare_rebalance(self, now: float, delay: float = 0.0) -> None:
        """Make all members join again; the rebalance time-out removes the others."""
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
        """Add a member to the current rebalance, or begin one."""
        if self.state is GroupState.PREPARING_REBALANCE:
            self.maybe_complete_join(now)
        else:
            self.prepare_rebalance(now, delay)

    def maybe_complete_join(self, now: float) -> None:
        """End the join phase if all members have joined."""
        if self.state is not GroupState.PREPARING_REBALANCE or now < self.earliest_end:
            return
        if not self.pending and self._all_joined():
            self.complete_join(now)

    def complete_join(self, now: float) -> None:
        """Begin the next generation with the members that joined."""
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
        """Set the leader's assignment: waiting members get theirs now, the others on request."""
        self.state = GroupState.STABLE
        self.changed = True
        for member in self.members.values():
            member.assignment = assignments.get(member.member_id, b"")
            if member.sync is not None:
                self.answer(member.sync, self.sync_answer(member))
                member.sync = None
                member.refresh(now)

    def sync_answer(self, member: GroupMember) -> SyncAnswer:
        """A member's assignment in the current generation."""
        return SyncAnswer(
            protocol_type=self.protocol_type,
            protocol_name=self.protocol,
            assignment=member.assignment,
        )

    # Time ----------------------------------------------------------------------------------

    def deadline(self) -> float | None:
        """When ``advance`` must be called next, if nothing happens before; None: not at all."""
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
        """Remove members that sent nothing in time, and end phases that have taken too long."""
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
        """Remove members that got the new generation and never requested their assignment."""
        self.sync_deadline = None
        if self.state is GroupState.COMPLETING_REBALANCE:
            for member in list(self.members.values()):
                if member.sync is None:
                    self.remove(member, ErrorCode.unknown_member_id)
            self._after_removal(now)

    def drop(self, member: GroupMember, now: float) -> None:
        """Remove a member that has left or timed out; the others take over its partitions."""
        self.remove(member, ErrorCode.unknown_member_id)
        self._after_removal(now)

    def _after_removal(self, now: float) -> None:
        if self.state in (GroupState.STABLE, GroupState.COMPLETING_REBALANCE):
            self.prepare_rebalance(now)
        else:
            self.maybe_complete_join(now)

    def resign(self, error: ErrorCode, now: float) -> None:
        """Fail all waiting members: this node is no longer the coordinator."""
        for member in self.members.values():
            member.refresh(now)
            self.refuse(member, error)
