"""One full response of every kind and version that kprod reads, written by kio."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, NamedTuple
from uuid import UUID

from kprod.wire.control import (
    decode_api_versions_response,
    decode_init_producer_id_response,
    decode_metadata_response,
)
from kprod.wire.produce import decode_produce_response
from kprod.wire.telemetry import decode_get_subscriptions_response, decode_push_response
from kprod.wire.versions import SUPPORTED, ApiKey
from tests.support.admin_samples import QUESTIONS, admin_response
from tests.support.kio_messages import response

TOPIC_ID = UUID("12345678-9abc-def0-0123-456789abcdef")
THROTTLE_MS = 250


class Sample(NamedTuple):
    """A response body and what reads it."""

    api: ApiKey
    version: int
    body: memoryview
    decode: Callable[[memoryview], Any]

    def __str__(self) -> str:
        return f"{self.api.name}-v{self.version}"


def samples() -> Iterator[Sample]:
    """In the order of API and version."""
    for api, (write, read) in _KINDS.items():
        first, last = SUPPORTED[api]
        for version in range(first, last + 1):
            yield Sample(api, version, write(version), partial(read, version))


def produce_response(version: int) -> memoryview:
    """Two topics; one partition stored, one refused with everything a refusal can carry."""
    stored = {"index": 0, "base_offset": 2**40, "log_start_offset": 17}
    refused = {
        "index": 5,
        "error_code": 6,
        "base_offset": -1,
        "log_start_offset": -1,
        "record_errors": [
            {"batch_index": 3, "batch_index_error_message": "no key"},
            {"batch_index": 4},
        ],
        "error_message": "moved",
        "current_leader": {"leader_id": 2, "leader_epoch": 7},
    }
    return response(
        ApiKey.PRODUCE,
        version,
        responses=[
            {"name": "flights", "topic_id": TOPIC_ID, "partition_responses": [stored, refused]},
            {"name": "weather", "topic_id": None, "partition_responses": [stored]},
        ],
        throttle_time=THROTTLE_MS,
        node_endpoints=[{"node_id": 2, "host": "h2", "port": 9093, "rack": "r"}],
    )


def metadata_response(version: int) -> memoryview:
    """Two brokers, one topic with a leaderless partition, one that is unknown."""
    led: dict[str, object] = {
        "leader_id": 1,
        "leader_epoch": 9,
        "isr_nodes": [1],
        "offline_replicas": [2],
    }
    leaderless: dict[str, object] = {"error_code": 5, "leader_id": -1, "leader_epoch": -1}
    partitions = [
        {"partition_index": number, "replica_nodes": [1, 2], **told}
        for number, told in enumerate((led, leaderless))
    ]
    return response(
        ApiKey.METADATA,
        version,
        throttle_time=THROTTLE_MS,
        brokers=[
            {"node_id": 1, "host": "h1", "port": 9092, "rack": "r1"},
            {"node_id": 2, "host": "h2", "port": 9093, "rack": None},
        ],
        cluster_id="cluster",
        controller_id=2,
        topics=[
            {"name": "flights", "topic_id": TOPIC_ID, "partitions": partitions},
            {"error_code": 3, "name": "wëather", "topic_id": None, "is_internal": True},
        ],
    )


def api_versions_response(version: int) -> memoryview:
    """Three APIs, one of them unknown to kprod; features from version 3 on."""
    level = {"name": "transaction.version", "max_version_level": 2, "min_version_level": 2}
    return response(
        ApiKey.API_VERSIONS,
        version,
        api_keys=[
            {"api_key": api, "min_version": first, "max_version": last}
            for api, first, last in ((0, 3, 13), (18, 0, 4), (9999, 1, 2))
        ],
        throttle_time=THROTTLE_MS,
        finalized_features_epoch=5,
        finalized_features=[level],
    )


def init_producer_id_response(version: int) -> memoryview:
    identity = {"producer_id": 4000, "producer_epoch": 3}
    return response(ApiKey.INIT_PRODUCER_ID, version, throttle_time=THROTTLE_MS, **identity)


def telemetry_subscriptions_response(version: int) -> memoryview:
    """A subscription, and an id for the client."""
    return response(
        ApiKey.GET_TELEMETRY_SUBSCRIPTIONS,
        version,
        throttle_time=THROTTLE_MS,
        client_instance_id=TOPIC_ID,
        subscription_id=77,
        accepted_compression_types=[4, 1, -1],
        push_interval=60_000,
        telemetry_max_bytes=1_000_000,
        delta_temporality=True,
        requested_metrics=["org.apache.kafka.producer.", ""],
    )


def push_telemetry_response(version: int) -> memoryview:
    """A refusal: TELEMETRY_TOO_LARGE."""
    return response(ApiKey.PUSH_TELEMETRY, version, throttle_time=THROTTLE_MS, error_code=118)


_KINDS: dict[ApiKey, tuple[Callable[[int], memoryview], Callable[[int, memoryview], Any]]] = {
    ApiKey.PRODUCE: (produce_response, decode_produce_response),
    ApiKey.METADATA: (metadata_response, decode_metadata_response),
    ApiKey.API_VERSIONS: (api_versions_response, decode_api_versions_response),
    ApiKey.INIT_PRODUCER_ID: (init_producer_id_response, decode_init_producer_id_response),
    ApiKey.GET_TELEMETRY_SUBSCRIPTIONS: (
        telemetry_subscriptions_response,
        decode_get_subscriptions_response,
    ),
    ApiKey.PUSH_TELEMETRY: (push_telemetry_response, decode_push_response),
    **{api: (partial(admin_response, api), question.decode) for api, question in QUESTIONS.items()},
}
