"""Handlers of metadata, topics and configuration."""

from __future__ import annotations

import uuid
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from kio.schema.errors import ErrorCode

from kprod.broker import GroupConfig, TransactionConfig
from kprod.broker.client_metrics import ClientMetricsSubscription
from kprod.broker.node import Node
from kprod.broker.protocol.api_key import VERSIONS, ApiKey
from kprod.broker.topics import is_legal_name
from kprod.errors import BrokerError
from kprod.types import TopicPartition
from tests.unit.broker.logs import append, open_directories, values
from tests.unit.broker.nodes import ask, running_node

NONE = ErrorCode.none
UNKNOWN = ErrorCode.unknown_topic_or_partition


def test_metadata_of_no_topic_all_topics_or_by_id(node: Node) -> None:
    topic = node.topics.create("t", 1)
    assert ask(node, ApiKey.METADATA, 12, topics=[]).topics == ()
    assert [t.name for t in ask(node, ApiKey.METADATA, 0, topics=[]).topics] == ["t"]
    topics = [{"name": None, "topic_id": topic_id} for topic_id in (topic.id, uuid.uuid4())]
    known, unknown = ask(node, ApiKey.METADATA, 12, topics=topics).topics
    assert (known.name, unknown.error_code) == ("t", ErrorCode.unknown_topic_id)


@pytest.mark.parametrize(
    ("requested", "enabled", "version", "created"),
    [
        (True, True, 12, True),
        (False, True, 12, False),
        (True, False, 12, False),
        (True, True, 1, True),
    ],
)
def test_topics_are_created_if_request_and_broker_allow_it(
    requested: bool, enabled: bool, version: int, created: bool, tmp_path: Path
) -> None:
    fields = {"topics": [{"name": "fresh"}], "allow_auto_topic_creation": requested}
    with running_node(tmp_path, auto_create_topics=enabled, default_partitions=4) as node:
        (found,) = ask(node, ApiKey.METADATA, version, **fields).topics
        assert found.error_code is (NONE if created else UNKNOWN)
        assert len(found.partitions) == (4 if created else 0)
        assert (node.topics.find("fresh") is not None) is created


def create(node: Node, validate_only: bool = False, **topic: Any) -> Any:
    wanted = {"name": "t", "num_partitions": 2, "replication_factor": 1, **topic}
    answer = ask(node, ApiKey.CREATE_TOPICS, 7, topics=[wanted], validate_only=validate_only)
    return answer.topics[0]


def test_metadata_creates_internal_topics_with_their_own_settings(tmp_path: Path) -> None:
    groups = GroupConfig(offsets_topic_partitions=5)
    transactions = TransactionConfig(state_topic_partitions=7)
    with running_node(tmp_path, group_config=groups, transaction_config=transactions) as node:
        for name, count in (("__consumer_offsets", 5), ("__transaction_state", 7)):
            (topic,) = ask(node, ApiKey.METADATA, 9, topics=[{"name": name}]).topics
            assert len(topic.partitions) == count
            assert node.topics.settings(name) == {"cleanup.policy": "compact"}


def test_internal_topics_keep_their_partition_count(tmp_path: Path) -> None:
    where = TopicPartition("t", 0)
    for count in (2, 5, 1):
        groups = GroupConfig(offsets_topic_partitions=count)
        with running_node(tmp_path, group_config=groups) as node:
            for group in "abcde":
                node.groups.commit(group, {where: (count, -1, "")})
                assert node.groups.committed(group)[where].offset == count
            assert node.groups.partition_of("b") == node.groups.partition_of("d")
            assert node.groups.partition_of("a") != node.groups.partition_of("b")


def test_create_topics_uses_the_request_or_defaults(tmp_path: Path) -> None:
    with running_node(tmp_path, default_partitions=5) as node:
        assert create(node, validate_only=True).error_code is NONE
        assert node.topics.find("t") is None
        created = create(node)
        topic = node.topics.find("t")
        assert topic is not None
        assert (created.error_code, created.num_partitions, created.topic_id) == (NONE, 2, topic.id)
        assert {config.name for config in created.configs} >= {"max.message.bytes", "retention.ms"}
        assert create(node).error_code is ErrorCode.topic_already_exists
        by_default: Any = {"num_partitions": -1, "replication_factor": -1}
        assert create(node, name="u", **by_default).num_partitions == 5
        assigned = [{"partition_index": n, "broker_ids": [1]} for n in range(3)]
        assert create(node, name="v", **by_default, assignments=assigned).num_partitions == 3


def assigned(partition: int, broker: int) -> dict[str, Any]:
    return {"assignments": [{"partition_index": partition, "broker_ids": [broker]}]}


def configured(name: str, value: str) -> dict[str, Any]:
    return {"configs": [{"name": name, "value": value}]}


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"name": ".."}, ErrorCode.invalid_topic_exception),
        ({"num_partitions": 0}, ErrorCode.invalid_partitions),
        ({"num_partitions": -2}, ErrorCode.invalid_partitions),
        ({"replication_factor": 3}, ErrorCode.invalid_replication_factor),
        (assigned(0, 2), ErrorCode.invalid_replica_assignment),
        (assigned(1, 1), ErrorCode.invalid_replica_assignment),
        (configured("retention.ms", "-5"), ErrorCode.invalid_config),
        (configured("no.such", "1"), ErrorCode.invalid_config),
        (configured("cleanup.policy", "delete"), NONE),
    ],
)
def test_invalid_topics_are_not_created(
    changes: dict[str, Any], expected: ErrorCode, node: Node
) -> None:
    assert create(node, **changes).error_code is expected


def test_partitions_are_added_and_topics_deleted(node: Node) -> None:
    topic = node.topics.create("t", 1)
    node.topics.create("u", 1)
    for name, count, validate_only, code in (
        ("t", 3, True, NONE),
        ("t", 3, False, NONE),
        ("t", 3, True, ErrorCode.invalid_partitions),
        ("nowhere", 3, False, UNKNOWN),
    ):
        wanted = [{"name": name, "count": count}]
        answer = ask(node, ApiKey.CREATE_PARTITIONS, 3, topics=wanted, validate_only=validate_only)
        assert answer.results[0].error_code is code
    assert len(topic.partitions) == 1
    assert [len(topic.partitions) for topic in node.topics.all()] == [3, 1]

    by_name = ask(node, ApiKey.DELETE_TOPICS, 5, topic_names=["u", "nowhere"]).responses
    assert [found.error_code for found in by_name] == [NONE, UNKNOWN]
    wanted_ids = [{"name": None, "topic_id": topic.id}] * 2
    by_id = ask(node, ApiKey.DELETE_TOPICS, 6, topics=wanted_ids).responses
    assert [found.error_code for found in by_id] == [NONE, ErrorCode.unknown_topic_id]
    assert by_id[0].name == "t"
    assert node.topics.all() == []


def test_configurations_are_described(node: Node) -> None:
    def describe(kind: int, name: str, keys: list[str] | None = None) -> Any:
        wanted = {"resource_type": kind, "resource_name": name, "configuration_keys": keys}
        return ask(node, ApiKey.DESCRIBE_CONFIGS, 4, resources=[wanted]).results[0]

    node.topics.create("t", 1)
    found = {config.name: config.value for config in describe(2, "t").configs}
    assert found.items() >= {"max.message.bytes": "1048588", "compression.type": "producer"}.items()
    (only,) = describe(4, "1", ["segment.bytes"]).configs
    assert only.name == "segment.bytes"
    assert describe(2, "nowhere").error_code is UNKNOWN
    assert describe(4, "2").error_code is ErrorCode.invalid_request
    assert describe(32, "g").error_code is ErrorCode.invalid_request


def test_api_versions_reports_ranges_and_checks_the_software_name(node: Node) -> None:
    def ask_as(name: str, version: str) -> Any:
        software = {"client_software_name": name, "client_software_version": version}
        return ask(node, ApiKey.API_VERSIONS, 3, **software)

    offered = ask_as("kprod", "0.1.0").api_keys
    found = {key.api_key: (key.min_version, key.max_version) for key in offered}
    on_request = {ApiKey.GET_TELEMETRY_SUBSCRIPTIONS, ApiKey.PUSH_TELEMETRY}
    spans = {api: (span.lowest, span.highest) for api, span in VERSIONS.items()}
    assert found == {api: spans[api] for api in spans.keys() - on_request}
    assert found[ApiKey.PRODUCE] == (0, 13)
    node.options.client_metrics.subscribe(ClientMetricsSubscription())
    assert {key.api_key for key in ask_as("kprod", "0.1.0").api_keys} == VERSIONS.keys()
    for name, version in (("", "1"), ("a b", "1"), ("a", "-1"), ("a.", "1")):
        assert ask_as(name, version).error_code is ErrorCode.invalid_request


# Topics -------------------------------------------------------------------------------------------


def test_legal_names() -> None:
    for name in ("a", "A.b_c-9", "x" * 249, "...", "-"):
        assert is_legal_name(name)
    for name in ("", ".", "..", "x" * 250, "a b", "ä", "a/b", "a\n", "a:b"):
        assert not is_legal_name(name), name


def test_topic_names_that_collide_in_metrics_are_refused(node: Node) -> None:
    node.topics.create("a.b_c", 1)
    for name in ("a_b.c", "a_b_c"):
        with pytest.raises(BrokerError, match="INVALID_TOPIC_EXCEPTION"):
            node.topics.create(name, 1)
    node.topics.create("a-b_c", 1)
    # A metadata request does not get the reason: the controller creates the topic later.
    fields = {"topics": [{"name": "a_b.c"}], "allow_auto_topic_creation": True}
    (found,) = ask(node, ApiKey.METADATA, 8, **fields).topics
    assert found.error_code == UNKNOWN


def test_an_incomplete_topic_is_completed_at_start(tmp_path: Path) -> None:
    logs = open_directories(tmp_path)
    topic_id = uuid.uuid4()
    for number in (5, 4):
        logs.create(TopicPartition("t", number), topic_id)
    (tmp_path / "t-3").mkdir()
    logs.abandon()
    with running_node(tmp_path) as node:
        (topic,) = node.topics.all()
        assert topic.id == topic_id
        assert [log.where.partition for log in topic.partitions] == list(range(6))


def test_concurrent_creation_gives_one_topic(node: Node) -> None:
    with ThreadPoolExecutor(8) as pool:
        found = pool.map(lambda _: node.topics.find_or_create("t", 2).id, range(8))
    assert len(set(found)) == 1


def test_a_recreated_topic_is_empty_and_has_another_id(node: Node) -> None:
    old = node.topics.create("t", 2)
    append(old.partitions[0], b"gone")
    node.topics.delete("t", 0)
    assert node.topics.find("t") is None
    with pytest.raises(BrokerError):
        append(old.partitions[0], b"too late")
    new = node.topics.create("t", 1)
    assert new.id != old.id
    assert values(new.partitions[0]) == []
