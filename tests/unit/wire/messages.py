"""Request and response of each API: fields as kio names them, and the decoded result."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any, NamedTuple
from uuid import UUID

import pytest

from kprod.types import Broker, TopicPartition
from kprod.wire import admin, control, telemetry, transactions
from kprod.wire.admin import Question
from kprod.wire.control import PartitionReplies, PartitionReply, TopicReply
from kprod.wire.produce import decode_produce_response
from kprod.wire.transactions import CommittedOffset, OffsetToCommit
from kprod.wire.versions import SUPPORTED, ApiKey
from kprod_ext import PartitionResponse
from tests.support.kio_messages import response

Fields = dict[str, Any]
ID = UUID("12345678-9abc-def0-0123-456789abcdef")
THROTTLE_MS = 250
NUMBER, CLIENT = 7, "me"


class Exchange(NamedTuple):
    """Fields of both messages as kio names them; ``expected`` is the decoded ``answer``.

    ``request`` is None where ``property/test_wire.py`` draws the requests.
    """

    answer: Fields
    decode: Callable[[int, memoryview], Any]
    expected: Callable[[int], Any]
    encode: Callable[[int], bytes] | None = None
    request: Fields | None = None


def rows(names: str, *values: tuple[Any, ...]) -> list[Fields]:
    """Structures with the fields ``names``."""
    return [dict(zip(names.split(), each, strict=True)) for each in values]


def of(topic: str, partitions: list[Fields]) -> list[Fields]:
    """One topic."""
    return rows("name partitions", (topic, partitions))


def encoding(encode: Callable[..., bytes], *arguments: Any) -> Callable[[int], bytes]:
    return lambda version: encode(version, NUMBER, CLIENT, *arguments)


def asking(question: Question[Any], request: Fields, answer: Fields, expected: object) -> Exchange:
    both = (expected, THROTTLE_MS)
    return Exchange(answer, question.decode, lambda _: both, encoding(question.encode), request)


def coordinating(
    name: str,
    arguments: tuple[Any, ...],
    request: Fields,
    answer: Fields,
    expected: Callable[[int], Any],
) -> Exchange:
    """An exchange of ``kprod.wire.transactions``."""
    encode = getattr(transactions, f"encode_{name}_request")
    decode = getattr(transactions, f"decode_{name}_response")
    return Exchange(answer, decode, expected, encoding(encode, *arguments), request)


def produced(version: int) -> Any:
    by_id, explained, led = version >= 13, version >= 8, version >= 10
    start = 17 if version >= 5 else -1
    first: Any = (None, ID.bytes) if by_id else ("a", None)
    second: Any = (None, None) if by_id else ("b", None)
    errors: list[tuple[int, str | None]] = [(3, "no key"), (4, None)] if explained else []
    refused: Any = (errors, "moved" if explained else None, *((2, 7) if led else (-1, -1)))
    results: list[Any] = [
        (*first, 0, 0, 2**40, -1, start, [], None, -1, -1),
        (*first, 5, 6, -1, -1, -1, *refused),
        (*second, 0, 0, 2**40, -1, start, [], None, -1, -1),
    ]
    brokers = [Broker(2, "h2", 9093, "r")] if led else []
    return [PartitionResponse(*each) for each in results], THROTTLE_MS, brokers


def known(version: int) -> control.MetadataReply:
    led = PartitionReply(0, 0, 1, 9 if version >= 7 else -1, (1, 2), (1,))
    partitions = PartitionReplies([led, PartitionReply(5, 1, -1, -1, (1, 2))])
    return control.MetadataReply(
        brokers=[Broker(1, "h1", 9092, "r1"), Broker(2, "h2", 9093, None)],
        cluster_id="cluster",
        controller_id=2,
        topics=[
            TopicReply(0, "flights", ID.bytes if version >= 10 else None, partitions),
            TopicReply(3, "wëather", None, PartitionReplies(), internal=True),
        ],
        throttle_ms=THROTTLE_MS,
        error_code=0,
    )


def offered(version: int) -> control.ApiVersionsReply:
    features = ({"transaction.version": 2}, 5) if version >= 3 else ({}, -1)
    ranges = {0: (3, 13), 18: (0, 4), 9999: (1, 2)}
    return control.ApiVersionsReply(0, ranges, THROTTLE_MS if version else 0, *features)


BROKERS = rows("node_id host port rack", (1, "h1", 9092, "r1"), (2, "h2", 9093, None))
LED: Fields = {"partition_index": 0, "leader_id": 1, "leader_epoch": 9, "replica_nodes": [1, 2]}
LED |= {"isr_nodes": [1], "offline_replicas": [2]}
LEADERLESS: Fields = {"partition_index": 1, "leader_id": -1, "leader_epoch": -1}
LEADERLESS |= {"replica_nodes": [1, 2], "error_code": 5}
STORED = {"index": 0, "base_offset": 2**40, "log_start_offset": 17}
REFUSED: Fields = {"index": 5, "error_code": 6, "base_offset": -1, "log_start_offset": -1}
REFUSED |= {
    "record_errors": rows("batch_index batch_index_error_message", (3, "no key"), (4, None)),
    "error_message": "moved",
    "current_leader": {"leader_id": 2, "leader_epoch": 7},
}
SUBSCRIPTION = {
    "client_instance_id": ID,
    "subscription_id": 77,
    "accepted_compression_types": [4, 1, -1],
    "push_interval": 60_000,
    "telemetry_max_bytes": 1_000_000,
    "delta_temporality": True,
    "requested_metrics": ["org.apache.kafka.producer.", ""],
}
PUSH = {
    "client_instance_id": ID,
    "subscription_id": -5,
    "terminating": True,
    "compression_type": 4,
    "metrics": b"m" * 300,
}
FETCHED = {
    "partition_index": 2,
    "high_watermark": 9,
    "last_stable_offset": 8,
    "log_start_offset": 1,
    "aborted_transactions": rows("producer_id first_offset", (4000, 5)),
    "preferred_read_replica": -1,
    "records": b"records",
}
PRODUCER_FIELDS = {"transactional_id": "tx", "producer_id": 4000, "producer_epoch": 3}
PRODUCER = (4000, 3)
MEMBER: Fields = {
    "group_id": "group",
    "generation_id": 4,
    "member_id": "m",
    "group_instance_id": "i",
}
COORDINATOR = {"node_id": 2, "host": "h", "port": 9092, "error_message": None}
TEXT = "x" * 3_000 + "\n"
"""The metadata of an offset is neither truncated nor made printable."""
OFFSETS = [OffsetToCommit("a", 0, 5, 2, "note"), OffsetToCommit("a", 1, 2**40)]
COMMITTED = [CommittedOffset("a", 0, 5, TEXT.encode(), 0), CommittedOffset("a", 2, -1, b"", 88)]
OPTIONS = [
    {"name": name, "value": value, "config_source": source, "is_sensitive": value is None}
    | {"synonyms": [{"name": "log.retention.ms", "value": None, "source": 5}]}
    for name, value, source in (
        ("retention.ms", "60000", 1),
        ("ssl.key.password", None, 1),
        ("segment.bytes", "1", 5),
    )
]

EXCHANGES: dict[ApiKey, Exchange] = {
    ApiKey.PRODUCE: Exchange(
        {
            "responses": rows(
                "name topic_id partition_responses",
                ("a", ID, [STORED, REFUSED]),
                ("b", None, [STORED]),
            ),
            "node_endpoints": rows("node_id host port rack", (2, "h2", 9093, "r")),
        },
        decode_produce_response,
        produced,
    ),
    ApiKey.METADATA: Exchange(
        {
            "brokers": BROKERS,
            "cluster_id": "cluster",
            "controller_id": 2,
            "topics": [
                {"name": "flights", "topic_id": ID, "partitions": [LED, LEADERLESS]},
                {"error_code": 3, "name": "wëather", "topic_id": None, "is_internal": True},
            ],
        },
        control.decode_metadata_response,
        known,
    ),
    ApiKey.API_VERSIONS: Exchange(
        {
            "api_keys": rows(
                "api_key min_version max_version", (0, 3, 13), (18, 0, 4), (9999, 1, 2)
            ),
            "finalized_features_epoch": 5,
            "finalized_features": rows(
                "name max_version_level min_version_level", ("transaction.version", 2, 2)
            ),
        },
        control.decode_api_versions_response,
        offered,
    ),
    ApiKey.INIT_PRODUCER_ID: Exchange(
        {"producer_id": 4000, "producer_epoch": 3},
        control.decode_init_producer_id_response,
        lambda _: control.InitProducerIdReply(0, 4000, 3, THROTTLE_MS),
    ),
    ApiKey.GET_TELEMETRY_SUBSCRIPTIONS: Exchange(
        SUBSCRIPTION,
        telemetry.decode_get_subscriptions_response,
        lambda _: telemetry.Subscription(
            *(0, ID.bytes, 77, (4, 1, -1), 60_000, 1_000_000, True),
            *(("org.apache.kafka.producer.", ""), THROTTLE_MS),
        ),
        encoding(telemetry.encode_get_subscriptions_request, ID.bytes),
        {"client_instance_id": ID},
    ),
    ApiKey.PUSH_TELEMETRY: Exchange(
        {"error_code": 118},
        telemetry.decode_push_response,
        lambda _: telemetry.PushReply(118, THROTTLE_MS),
        encoding(telemetry.encode_push_request, telemetry.Push(ID.bytes, -5, True, 4, b"m" * 300)),
        PUSH,
    ),
    ApiKey.FETCH: asking(
        admin.fetch("a", 2, 7, most=1000, wait_ms=500, committed=True),
        {
            "replica_id": -1,
            "max_wait": timedelta(milliseconds=500),
            "min_bytes": 1,
            "max_bytes": 1000,
            "isolation_level": 1,
            "topics": rows(
                "topic partitions",
                ("a", rows("partition fetch_offset partition_max_bytes", (2, 7, 1000))),
            ),
        },
        {"responses": rows("topic partitions", ("a", [FETCHED]))},
        admin.FetchedPartition(0, 9, 8, [(4000, 5)], memoryview(b"records")),
    ),
    ApiKey.LIST_OFFSETS: asking(
        admin.list_offset("a", 2, admin.EARLIEST, committed=True),
        {"isolation_level": 1, "topics": of("a", rows("partition_index timestamp", (2, -2)))},
        {"topics": of("a", rows("partition_index timestamp offset", (2, -1, 9)))},
        (0, 9),
    ),
    ApiKey.OFFSET_COMMIT: asking(
        admin.commit_offsets("g", "a", {0: 5, 1: 6}),
        {
            "group_id": "g",
            "member_id": "",
            "topics": of("a", rows("partition_index committed_offset", (0, 5), (1, 6))),
        },
        {"topics": of("a", rows("partition_index error_code", (0, 0), (1, 25)))},
        [0, 25],
    ),
    ApiKey.CREATE_TOPICS: asking(
        admin.create_topic("a", 3, 1, {"retention.ms": "60000"}, 1000),
        {
            "topics": rows(
                "name num_partitions replication_factor configs",
                ("a", 3, 1, rows("name value", ("retention.ms", "60000"))),
            ),
            "timeout": timedelta(seconds=1),
            "validate_only": False,
        },
        {"topics": rows("name error_code error_message", ("a", 36, "it is there"))},
        admin.Refusal(36, "it is there"),
    ),
    ApiKey.DELETE_TOPICS: asking(
        admin.delete_topic("a", 1000),
        {"topic_names": ("a",)},
        {"responses": rows("name error_code", ("a", 3))},
        admin.Refusal(3, ""),
    ),
    ApiKey.DESCRIBE_CONFIGS: asking(
        admin.topic_options("a"),
        {
            "resources": rows("resource_type resource_name configuration_keys", (2, "a", None)),
            "include_synonyms": False,
        },
        {
            "results": rows(
                "error_message resource_type resource_name configs", (None, 2, "a", OPTIONS)
            )
        },
        (admin.Refusal(0, ""), {"retention.ms": "60000", "ssl.key.password": "***"}),
    ),
    ApiKey.LIST_TRANSACTIONS: asking(
        admin.list_transactions(["Ongoing"]),
        {"state_filters": ("Ongoing",), "producer_id_filters": ()},
        {
            "unknown_state_filters": ["Odd"],
            "transaction_states": rows(
                "transactional_id producer_id transaction_state",
                *((name, 4000, "Ongoing") for name in ("tx-1", "tx-2")),
            ),
        },
        admin.TransactionList(0, ["tx-1", "tx-2"]),
    ),
    ApiKey.DESCRIBE_TRANSACTIONS: asking(
        admin.describe_transactions(["tx"]),
        {"transactional_ids": ("tx",)},
        {
            "transaction_states": [
                {
                    **PRODUCER_FIELDS,
                    "transaction_state": "Ongoing",
                    "transaction_timeout": 60_000,
                    "transaction_start_time": 1_700_000_000_000,
                    "topics": rows("topic partitions", ("a", [2, 0])),
                }
            ]
        },
        [
            admin.TransactionState(
                *(0, "tx", "Ongoing", 60_000, 1_700_000_000_000, *PRODUCER),
                (TopicPartition("a", 0), TopicPartition("a", 2)),
            )
        ],
    ),
    ApiKey.FIND_COORDINATOR: coordinating(
        "find_coordinator",
        ("tx", transactions.TRANSACTION),
        {"key_type": 1, "key": "tx", "coordinator_keys": ("tx",)},
        {"coordinators": [{"key": "tx", **COORDINATOR}], **COORDINATOR},
        lambda _: transactions.CoordinatorReply(0, None, 2, THROTTLE_MS),
    ),
    ApiKey.ADD_PARTITIONS_TO_TXN: coordinating(
        "add_partitions",
        ("tx", PRODUCER, {"a": [0, 2], "b": [1]}),
        {f"v3_and_below_{name}": value for name, value in PRODUCER_FIELDS.items()}
        | {"v3_and_below_topics": rows("name partitions", ("a", (0, 2)), ("b", (1,)))},
        {
            "results_by_topic_v3_and_below": rows(
                "name results_by_partition",
                ("a", rows("partition_index partition_error_code", (0, 0), (2, 29))),
            )
        },
        lambda _: transactions.PartitionsReply([("a", 0, 0), ("a", 2, 29)], THROTTLE_MS),
    ),
    ApiKey.ADD_OFFSETS_TO_TXN: coordinating(
        "add_offsets",
        ("tx", PRODUCER, "group"),
        {**PRODUCER_FIELDS, "group_id": "group"},
        {"error_code": 51},
        lambda _: transactions.CodeReply(51, THROTTLE_MS),
    ),
    ApiKey.TXN_OFFSET_COMMIT: coordinating(
        "txn_offset_commit",
        ("tx", PRODUCER, transactions.GroupMetadata(*MEMBER.values()), OFFSETS),
        {
            **PRODUCER_FIELDS,
            **MEMBER,
            "topics": of(
                "a",
                rows(
                    "partition_index committed_offset committed_leader_epoch committed_metadata",
                    *((0, 5, 2, "note"), (1, 2**40, -1, "")),
                ),
            ),
        },
        {"topics": of("a", [{"partition_index": 0}])},
        lambda _: transactions.PartitionsReply([("a", 0, 0)], THROTTLE_MS),
    ),
    ApiKey.OFFSET_FETCH: coordinating(
        "offset_fetch",
        ("group", {"a": [0, 2], "b": [1]}),
        {
            "group_id": "group",
            "require_stable": True,
            "topics": rows("name partition_indexes", ("a", (0, 2)), ("b", (1,))),
        },
        {
            "topics": of(
                "a",
                rows(
                    "partition_index committed_offset metadata error_code",
                    *((0, 5, TEXT, 0), (2, -1, None, 88)),
                ),
            )
        },
        lambda _: transactions.OffsetsReply(COMMITTED, 0, THROTTLE_MS),
    ),
    ApiKey.END_TXN: coordinating(
        "end_txn",
        ("tx", PRODUCER, True),
        {**PRODUCER_FIELDS, "committed": True},
        {"producer_id": 4000, "producer_epoch": 4},
        lambda v: transactions.EndTxnReply(0, (4000, 4) if v >= 5 else None, THROTTLE_MS),
    ),
}


def versions(api: ApiKey) -> range:
    first, last = SUPPORTED[api]
    return range(first, last + 1)


EVERY = [
    pytest.param(api, version, id=f"{api.name}-v{version}")
    for api in EXCHANGES
    for version in versions(api)
]


def answer(api: ApiKey, version: int) -> bytes:
    """The body of the full answer, as kio writes it."""
    return bytes(response(api, version, throttle_time=THROTTLE_MS, **EXCHANGES[api].answer))
