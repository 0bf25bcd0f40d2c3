"""Requests to send to two brokers, and their answers in a form that can be compared."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import fields, is_dataclass
from typing import Any, Final

from kprod.broker.protocol.api_key import ApiKey
from kprod.broker.protocol.messages import Message
from tests.support.raw_batch import raw_batch
from tests.support.wire_client import WireClient

OWN: Final = frozenset(
    [
        *("host", "port", "rack", "cluster_id", "topic_id", "producer_id", "throttle_time"),
        *("error_message", "member_id", "brokers", "api_keys", "configs", "supported_features"),
        *("finalized_features", "finalized_features_epoch", "cluster_authorized_operations"),
        *("topic_authorized_operations", "authorized_operations", "log_append_time_ms"),
        *("node_endpoints", "session_id", "leader_id", "controller_id"),
    ]
)
"""Fields that may differ between two brokers."""


Named = tuple[ApiKey, str, Message]


def requests(topic: str) -> Iterator[Named]:
    """Named requests about a topic with one partition; their order matters."""
    yield from _about_records(topic)
    yield from _about_groups(topic)
    yield from _administration(topic)


def _on(topic: str, **more: Any) -> list[Message]:
    """One partition of a topic, under all of its field names."""
    part = {"partition": 0, "partition_index": 0, "index": 0, "current_leader_epoch": -1}
    entry = {**part, "leader_epoch": 0, "partition_max_bytes": 9999, **more}
    indexes = [more.get("partition", 0)]
    lists = {"partitions": [entry], "partition_data": [entry], "partition_indexes": indexes}
    return [{"name": topic, "topic": topic, **lists}]


def _about_records(topic: str) -> Iterator[Named]:
    batch = raw_batch([b"a", b"b"])
    for what, records in (
        ("stored", batch),
        ("nothing", b""),
        ("wrong CRC", raw_batch([b"a"], crc=1)),
        ("wrong magic", batch[:16] + b"\1" + batch[17:]),
        ("two batches", batch + batch),
        ("cut off", batch[:-3]),
    ):
        yield ApiKey.PRODUCE, what, {"acks": -1, "topic_data": _on(topic, records=records)}
    yield ApiKey.PRODUCE, "acks 5", {"acks": 5, "topic_data": _on(topic, records=batch)}
    yield ApiKey.PRODUCE, "no topic", {"acks": 1, "topic_data": _on("absent", records=batch)}
    for what, more in (
        ("beginning", {"fetch_offset": 0}),
        ("end", {"fetch_offset": 2_000_000}),
        ("negative", {"fetch_offset": -1}),
        ("newer epoch", {"fetch_offset": 0, "current_leader_epoch": 9}),
        ("no partition", {"partition": 7}),
    ):
        limits = {"max_wait": 10, "min_bytes": 0, "max_bytes": 99_999, "session_epoch": -1}
        yield ApiKey.FETCH, what, {"topics": _on(topic, **more), "replica_id": -1, **limits}
    for timestamp in (-1, -2, -3, -4, 0, 2**62):
        at = {"replica_id": -1, "topics": _on(topic, timestamp=timestamp)}
        yield ApiKey.LIST_OFFSETS, f"at {timestamp}", at
    yield ApiKey.LIST_OFFSETS, "no topic", {"replica_id": -1, "topics": _on("absent", timestamp=-1)}
    yield ApiKey.METADATA, "topic", {"topics": [{"name": topic}]}
    yield ApiKey.METADATA, "bad name", {"topics": [{"name": "a/b"}]}
    absent = {"topics": [{"name": "absent"}], "allow_auto_topic_creation": False}
    yield ApiKey.METADATA, "absent", absent


def _about_groups(topic: str) -> Iterator[Named]:
    group = {"group_id": "g", "topics": _on(topic, committed_offset=1, committed_metadata="m")}
    member = {"generation_id": 5, "member_id": "unknown"}
    yield ApiKey.FIND_COORDINATOR, "group", {"key": "g", "coordinator_keys": ["g"]}
    yield ApiKey.OFFSET_COMMIT, "simple", {**group, "generation_id_or_member_epoch": -1}
    yield ApiKey.OFFSET_COMMIT, "unknown member", {**group, "generation_id_or_member_epoch": 3}
    yield ApiKey.OFFSET_FETCH, "committed", {**group, "groups": [group]}
    yield ApiKey.HEARTBEAT, "unknown member", {**member, "group_id": "g"}
    yield ApiKey.SYNC_GROUP, "unknown member", {**member, "group_id": "g"}
    yield ApiKey.LEAVE_GROUP, "unknown member", {**member, "group_id": "g", "members": [member]}
    for what, join in (
        ("short session", {"group_id": "g", "session_timeout": 1}),
        ("no group", {"group_id": "", "session_timeout": 10_000}),
        ("unknown member", {"group_id": "g", "session_timeout": 10_000, "member_id": "unknown"}),
    ):
        join["protocols"] = [{"name": "range", "metadata": b""}]
        join |= {"protocol_type": "consumer", "rebalance_timeout": 1}
        yield ApiKey.JOIN_GROUP, what, join
    yield ApiKey.DESCRIBE_GROUPS, "two", {"groups": ["g", "absent"]}
    yield ApiKey.LIST_GROUPS, "all", {}
    yield ApiKey.DELETE_GROUPS, "absent", {"groups_names": ["absent"]}
    yield ApiKey.OFFSET_DELETE, "absent", {"group_id": "absent", "topics": _on(topic)}


def _administration(topic: str) -> Iterator[Named]:
    yield ApiKey.OFFSET_FOR_LEADER_EPOCH, "known", {"replica_id": -1, "topics": _on(topic)}
    unknown = _on(topic, leader_epoch=9)
    yield ApiKey.OFFSET_FOR_LEADER_EPOCH, "unknown", {"replica_id": -1, "topics": unknown}
    for what, wanted in (
        ("exists", {"name": topic, "num_partitions": 1, "replication_factor": 1}),
        ("bad name", {"name": "a/b", "num_partitions": 1, "replication_factor": 1}),
        ("no partitions", {"name": "u", "num_partitions": 0, "replication_factor": 1}),
        ("many replicas", {"name": "u", "num_partitions": 1, "replication_factor": 9}),
    ):
        yield ApiKey.CREATE_TOPICS, what, {"topics": [wanted], "timeout": 5_000}
    gone = {"topics": [{"name": "absent"}], "topic_names": ["absent"], "timeout": 5_000}
    yield ApiKey.DELETE_TOPICS, "absent", gone
    fewer = {"topics": [{"name": topic, "count": 1}], "timeout": 5_000}
    yield ApiKey.CREATE_PARTITIONS, "no more", fewer
    yield ApiKey.DELETE_RECORDS, "none", {"topics": _on(topic, offset=0), "timeout": 5_000}
    yield ApiKey.DELETE_RECORDS, "too many", {"topics": _on(topic, offset=10**9), "timeout": 5_000}
    yield ApiKey.DELETE_RECORDS, "absent", {"topics": _on("absent", offset=0), "timeout": 5_000}
    yield ApiKey.DESCRIBE_PRODUCERS, "all", {"topics": _on(topic)}
    resource = {"resource_type": 2, "resource_name": topic}
    for what, configs in (
        ("set", [{"name": "retention.ms", "value": "90000"}]),
        ("bad value", [{"name": "retention.ms", "value": "soon"}]),
        ("no such", [{"name": "no.such", "value": "1"}]),
    ):
        altered = {"resources": [{**resource, "configs": configs}]}
        yield ApiKey.INCREMENTAL_ALTER_CONFIGS, what, altered
    half = {"transactional_id": None, "producer_id": 5, "producer_epoch": -1}
    new = {**half, "transaction_timeout": 60_000, "producer_id": -1}
    yield ApiKey.INIT_PRODUCER_ID, "new", new
    yield ApiKey.INIT_PRODUCER_ID, "half an id", half
    yield ApiKey.DESCRIBE_CLUSTER, "all", {}


def answer(client: WireClient, api: ApiKey, version: int, values: Message) -> Any:
    """A broker's answer as nested mappings, without the fields that may differ."""
    client.send(api, version, values)
    return plain(client.receive(api, version)[1])


def plain(value: Any) -> Any:
    """A message as mappings and lists that can be compared."""
    if is_dataclass(value) and not isinstance(value, type):
        found: Mapping[str, Any] = {
            field.name: plain(getattr(value, field.name))
            for field in fields(value)
            if field.name not in OWN
        }
        return found
    if isinstance(value, tuple):
        return [plain(one) for one in value]
    return bytes(value) if isinstance(value, memoryview) else value
