"""One full response of every kind and version that kprod reads, written by kio."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import timedelta
from functools import partial
from typing import Any, NamedTuple
from uuid import UUID

from kio.schema.errors import ErrorCode

from kprod.wire.control import (
    decode_api_versions_response,
    decode_init_producer_id_response,
    decode_metadata_response,
)
from kprod.wire.produce import decode_produce_response
from kprod.wire.telemetry import decode_get_subscriptions_response, decode_push_response
from kprod.wire.versions import SUPPORTED, ApiKey
from tests.support.admin_samples import QUESTIONS, admin_response
from tests.support.kio_messages import build, encode, response_schema

TOPIC_ID = UUID("12345678-9abc-def0-0123-456789abcdef")
THROTTLE = timedelta(milliseconds=250)


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
    schema = response_schema(ApiKey.PRODUCE, version)
    stored = build(
        schema.PartitionProduceResponse,
        index=0,
        error_code=ErrorCode.none,
        base_offset=2**40,
        log_append_time=None,
        log_start_offset=17,
        record_errors=(),
        error_message=None,
    )
    values: dict[str, Any] = {}
    if version >= 8:
        error = schema.BatchIndexAndErrorMessage
        values["record_errors"] = (
            error(batch_index=3, batch_index_error_message="no key"),
            error(batch_index=4),
        )
    if version >= 10:
        values["current_leader"] = schema.LeaderIdAndEpoch(leader_id=2, leader_epoch=7)
    refused = build(
        schema.PartitionProduceResponse,
        index=5,
        error_code=ErrorCode.not_leader_or_follower,
        base_offset=-1,
        log_append_time=None,
        log_start_offset=-1,
        error_message="moved",
        **values,
    )
    topics = (
        build(
            schema.TopicProduceResponse,
            name="flights",
            topic_id=TOPIC_ID,
            partition_responses=(stored, refused),
        ),
        build(
            schema.TopicProduceResponse,
            name="weather",
            topic_id=None,
            partition_responses=(stored,),
        ),
    )
    response: dict[str, Any] = {"responses": topics, "throttle_time": THROTTLE}
    if version >= 10:
        endpoint = schema.NodeEndpoint(node_id=2, host="h2", port=9093, rack="r")
        response["node_endpoints"] = (endpoint,)
    return encode(build(schema.ProduceResponse, **response))


def metadata_response(version: int) -> memoryview:
    """Two brokers, one topic with a leaderless partition, one that is unknown."""
    schema = response_schema(ApiKey.METADATA, version)
    brokers = (
        schema.MetadataResponseBroker(node_id=1, host="h1", port=9092, rack="r1"),
        schema.MetadataResponseBroker(node_id=2, host="h2", port=9093, rack=None),
    )
    led = build(
        schema.MetadataResponsePartition,
        error_code=ErrorCode.none,
        partition_index=0,
        leader_id=1,
        leader_epoch=9,
        replica_nodes=(1, 2),
        isr_nodes=(1,),
        offline_replicas=(2,),
    )
    leaderless = build(
        schema.MetadataResponsePartition,
        error_code=ErrorCode.leader_not_available,
        partition_index=1,
        leader_id=-1,
        leader_epoch=-1,
        replica_nodes=(1, 2),
        isr_nodes=(),
        offline_replicas=(),
    )
    topics = (
        build(
            schema.MetadataResponseTopic,
            error_code=ErrorCode.none,
            name="flights",
            topic_id=TOPIC_ID,
            is_internal=False,
            partitions=(led, leaderless),
        ),
        build(
            schema.MetadataResponseTopic,
            error_code=ErrorCode.unknown_topic_or_partition,
            name="wëather",
            topic_id=None,
            is_internal=True,
            partitions=(),
        ),
    )
    return encode(
        build(
            schema.MetadataResponse,
            throttle_time=THROTTLE,
            brokers=brokers,
            cluster_id="cluster",
            controller_id=2,
            topics=topics,
            error_code=ErrorCode.none,
        )
    )


def api_versions_response(version: int) -> memoryview:
    """Three APIs, one of them unknown to kprod; features from version 3 on."""
    schema = response_schema(ApiKey.API_VERSIONS, version)
    api = schema.ApiVersion
    values: dict[str, Any] = {
        "error_code": ErrorCode.none,
        "api_keys": (
            api(api_key=0, min_version=3, max_version=13),
            api(api_key=18, min_version=0, max_version=4),
            api(api_key=9999, min_version=1, max_version=2),
        ),
        "throttle_time": THROTTLE,
    }
    if version >= 3:
        feature = schema.FinalizedFeatureKey
        values["finalized_features_epoch"] = 5
        values["finalized_features"] = (
            feature(name="transaction.version", max_version_level=2, min_version_level=2),
        )
    return encode(build(schema.ApiVersionsResponse, **values))


def init_producer_id_response(version: int) -> memoryview:
    """An identity."""
    schema = response_schema(ApiKey.INIT_PRODUCER_ID, version)
    return encode(
        schema.InitProducerIdResponse(
            throttle_time=THROTTLE, error_code=ErrorCode.none, producer_id=4000, producer_epoch=3
        )
    )


def telemetry_subscriptions_response(version: int) -> memoryview:
    """A subscription, and an id for the client."""
    schema = response_schema(ApiKey.GET_TELEMETRY_SUBSCRIPTIONS, version)
    return encode(
        schema.GetTelemetrySubscriptionsResponse(
            throttle_time=THROTTLE,
            error_code=ErrorCode.none,
            client_instance_id=TOPIC_ID,
            subscription_id=77,
            accepted_compression_types=(4, 1, -1),
            push_interval=timedelta(minutes=1),
            telemetry_max_bytes=1_000_000,
            delta_temporality=True,
            requested_metrics=("org.apache.kafka.producer.", ""),
        )
    )


def push_telemetry_response(version: int) -> memoryview:
    """A refusal."""
    schema = response_schema(ApiKey.PUSH_TELEMETRY, version)
    refused = ErrorCode.telemetry_too_large
    return encode(schema.PushTelemetryResponse(throttle_time=THROTTLE, error_code=refused))


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
