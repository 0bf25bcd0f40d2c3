"""The state machine of consumer groups, with a fake clock."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from kio.schema.errors import ErrorCode

from kprod.broker.groups import membership
from kprod.broker.groups.group import (
    ConsumerGroup,
    GroupState,
    JoinAnswer,
    JoinRequest,
    SyncAnswer,
    SyncRequest,
)
from kprod.broker.groups.offsets_topic import OFFSETS_TOPIC
from kprod.broker.java_hash import java_hash
from kprod.broker.node import Node
from kprod.broker.protocol.api_key import ApiKey
from tests.unit.broker.nodes import ask, running_node

RANGE = (("range", b"sub"),)
SESSION, REBALANCE = 10.0, 60.0


class Rig:
    """One group; the answers are recorded by member."""

    def __init__(self) -> None:
        self.group = ConsumerGroup("g")
        self.now = 100.0
        self.joins: dict[str, list[JoinAnswer]] = {}
        self.syncs: dict[str, list[SyncAnswer]] = {}

    def _answer(self) -> None:
        answers, self.group.answers = self.group.answers, []
        for give in answers:
            give()

    def join(self, name: str, member_id: str = "", **options: Any) -> None:
        """The member's new id is its name."""
        fields: dict[str, Any] = {
            "member_id": member_id,
            "instance_id": None,
            "client_id": "c",
            "client_host": "/h",
            "session_timeout": SESSION,
            "rebalance_timeout": REBALANCE,
            "protocol_type": "consumer",
            "protocols": RANGE,
            "knows_required_ids": False,
            **options,
        }
        reply = self.joins.setdefault(name, []).append
        membership.join(self.group, JoinRequest(**fields), reply, new_id=name, now=self.now)
        self._answer()

    def sync(self, name: str, assignments: dict[str, bytes] | None = None, **options: Any) -> None:
        fields: dict[str, Any] = {
            "generation": self.group.generation,
            "member_id": name,
            "assignments": tuple((assignments or {}).items()),
            **options,
        }
        reply = self.syncs.setdefault(name, []).append
        membership.sync(self.group, SyncRequest(**fields), reply, now=self.now)
        self._answer()

    def heartbeat(self, name: str, generation: int | None = None) -> ErrorCode:
        epoch = self.group.generation if generation is None else generation
        return membership.heartbeat(self.group, name, None, epoch, self.now)

    def pass_time(self, seconds: float) -> None:
        self.now += seconds
        self.group.advance(self.now)
        self._answer()

    def stabilize(self, *names: str) -> None:
        """Bring all members into one generation, each with an assignment."""
        for name in names:
            self.join(name)
        for name in names[:-1]:
            if self.group.state is GroupState.PREPARING_REBALANCE:
                self.join(name, name)
        self.sync(self.group.leader or "", {name: name.encode() for name in names})
        for name in names:
            if name != self.group.leader:
                self.sync(name)
        assert self.group.state is GroupState.STABLE


@pytest.fixture
def rig() -> Rig:
    return Rig()


def test_an_unused_member_id_does_not_block_the_group(rig: Rig) -> None:
    rig.join("ghost", knows_required_ids=True)
    rig.join("a")
    assert not rig.joins["a"]
    rig.pass_time(SESSION)
    assert rig.joins["a"][-1].generation_id == 1


def test_a_member_without_heartbeats_is_removed(rig: Rig) -> None:
    rig.stabilize("a", "b")
    rig.pass_time(SESSION / 2)
    assert rig.heartbeat("a") is ErrorCode.none
    rig.pass_time(SESSION / 2)
    assert list(rig.group.members) == ["a"]
    assert rig.heartbeat("a") is ErrorCode.rebalance_in_progress
    assert rig.heartbeat("b") is ErrorCode.unknown_member_id


def keep_only_a_alive(rig: Rig) -> None:
    for _ in range(int(REBALANCE)):
        rig.heartbeat("a")
        rig.pass_time(1)


def test_a_member_that_does_not_rejoin_in_time_is_removed(rig: Rig) -> None:
    rig.stabilize("a", "b")
    rig.join("c")
    keep_only_a_alive(rig)
    assert list(rig.group.members) == ["c"]
    assert rig.joins["c"][-1].leader == "c"


def test_a_member_that_never_syncs_is_removed(rig: Rig) -> None:
    rig.join("a")
    rig.join("b")
    rig.join("a", "a")
    rig.sync("b")
    keep_only_a_alive(rig)
    assert list(rig.group.members) == ["b"]
    assert rig.syncs["b"][-1].error_code is ErrorCode.rebalance_in_progress


@pytest.mark.parametrize(
    ("member", "generation", "expected"),
    [
        ("a", 0, ErrorCode.illegal_generation),
        ("nobody", 1, ErrorCode.unknown_member_id),
        ("a", 1, ErrorCode.none),
    ],
)
def test_members_are_fenced(rig: Rig, member: str, generation: int, expected: ErrorCode) -> None:
    rig.stabilize("a")
    assert rig.heartbeat(member, generation) is expected
    refused = membership.check_commit(rig.group, member, None, generation, rig.now)
    assert (refused or ErrorCode.none) is expected


def test_the_protocol_with_most_votes_is_chosen(rig: Rig) -> None:
    both = (("sticky", b"s"), ("range", b"r"))
    rig.join("a", protocols=both[::-1])
    rig.join("b", protocols=both)
    rig.join("c", protocols=both)
    rig.join("a", "a", protocols=both[::-1])
    assert {rig.joins[name][-1].protocol_name for name in "abc"} == {"sticky"}
    rig.join("d", protocols=(("other", b""),))
    assert rig.joins["d"][-1].error_code is ErrorCode.inconsistent_group_protocol


def test_a_repeated_join_gets_the_lost_answer(rig: Rig) -> None:
    rig.stabilize("a", "b")
    rig.join("b", "b")
    assert rig.joins["b"][-1].generation_id == rig.group.generation
    rig.join("a", "a")
    assert [len(rig.joins[name]) for name in "ab"] == [2, 2]
    assert rig.group.state is GroupState.PREPARING_REBALANCE


def test_a_static_member_can_leave_by_instance_id(rig: Rig) -> None:
    rig.join("a", instance_id="one")
    assert membership.leave(rig.group, "", "one", rig.now) is ErrorCode.none
    assert rig.group.state is GroupState.EMPTY
    assert membership.leave(rig.group, "", "one", rig.now) is ErrorCode.unknown_member_id


def test_a_commit_without_a_generation_needs_an_empty_group(rig: Rig) -> None:
    """As in Kafka, no generation fences a member whose session has ended."""

    def commit(member_id: str, generation: int) -> ErrorCode | None:
        return membership.check_commit(rig.group, member_id, "one", generation, rig.now)

    rig.join("a", instance_id="one")
    rig.sync("a", {"a": b"share"})
    assert commit("a", 1) is None
    assert commit("", -1) is ErrorCode.fenced_instance_id
    rig.pass_time(SESSION)
    assert rig.group.state is GroupState.EMPTY
    assert commit("a", 1) is ErrorCode.unknown_member_id
    assert commit("", -1) is None
    rig.join("b", instance_id="two")
    assert commit("", -1) is ErrorCode.unknown_member_id


def test_a_group_with_offsets_only_survives_a_restart(tmp_path: Path) -> None:
    """Only its offsets are stored, no record of the group."""
    offset = {"partition_index": 0, "committed_offset": 5, "committed_metadata": ""}
    topics = [{"name": "t", "partitions": [offset]}]
    with running_node(tmp_path) as node:
        node.topics.create("t", 1)
        commit = {"generation_id_or_member_epoch": -1, "group_id": "g", "topics": topics}
        ask(node, ApiKey.OFFSET_COMMIT, 8, **commit)
    with running_node(tmp_path) as node:
        listed = ask(node, ApiKey.LIST_GROUPS, 4).groups
        assert [(group.group_id, group.group_state) for group in listed] == [("g", "Empty")]
        assert ask(node, ApiKey.DELETE_GROUPS, 2, groups_names=["g"]).results[0].error_code == 0
    with running_node(tmp_path) as node:
        assert not ask(node, ApiKey.LIST_GROUPS, 4).groups


def test_produce_to_internal_topics_is_refused(node: Node) -> None:
    from tests.unit.broker.requests import REQUESTS

    node.topics.create(OFFSETS_TOPIC, 1)
    topic = {**REQUESTS[ApiKey.PRODUCE]["topic_data"][0], "name": OFFSETS_TOPIC}
    (answer,) = ask(node, ApiKey.PRODUCE, 9, acks=-1, topic_data=[topic]).responses
    refused = answer.partition_responses[0].error_code
    assert refused is ErrorCode.invalid_topic_exception


def test_java_hash_equals_string_hash_code() -> None:
    hashed = [java_hash(text) for text in ("", "a", "hello", "polygenelubricants")]
    assert hashed == [0, 97, 99162322, 0]
