"""Requests that read topics and look after them, as kio reads them, and its answers to them."""

from __future__ import annotations

import datetime
from typing import Any

import pytest

from kprod.errors import ProtocolError
from kprod.types import TopicPartition
from kprod.wire import admin
from kprod.wire.admin import Question
from kprod.wire.versions import SUPPORTED, ApiKey
from tests.support.admin_samples import QUESTIONS, admin_response
from tests.support.kio_messages import read_request, response

VERSIONS = [
    (question.api, version)
    for question in QUESTIONS.values()
    for version in range(SUPPORTED[question.api][0], SUPPORTED[question.api][1] + 1)
]


def read(question: Question[Any], version: int) -> Any:
    """The request as kio reads it."""
    header, body = read_request(question.api, version, question.encode(version, 7, "me"))
    assert (header.correlation_id, header.client_id) == (7, "me")
    return body


ANSWERS: dict[ApiKey, Any] = {
    ApiKey.FETCH: admin.FetchedPartition(0, 9, 8, [(4000, 5)], memoryview(b"records")),
    ApiKey.LIST_OFFSETS: (0, 9),
    ApiKey.OFFSET_COMMIT: [0, 25],
    ApiKey.CREATE_TOPICS: admin.Refusal(36, "it is there"),
    ApiKey.DELETE_TOPICS: admin.Refusal(3, ""),
    ApiKey.DESCRIBE_CONFIGS: (
        admin.Refusal(0, ""),
        {"retention.ms": "60000", "ssl.key.password": "***"},
    ),
    ApiKey.LIST_TRANSACTIONS: admin.TransactionList(0, ["tx-1", "tx-2"]),
    ApiKey.DESCRIBE_TRANSACTIONS: [
        admin.TransactionState(
            0,
            "tx-1",
            "Ongoing",
            60_000,
            1_700_000_000_000,
            4000,
            3,
            (TopicPartition("a", 0), TopicPartition("a", 2)),
        )
    ],
}


@pytest.mark.parametrize(("api", "version"), VERSIONS)
def test_answers_of_every_version(api: ApiKey, version: int) -> None:
    answer, throttle_ms = QUESTIONS[api].decode(version, admin_response(api, version))
    assert (answer, throttle_ms) == (ANSWERS[api], 250)


@pytest.mark.parametrize(("api", "version"), VERSIONS)
def test_requests_of_every_version(api: ApiKey, version: int) -> None:
    body = read(QUESTIONS[api], version)
    if api is ApiKey.FETCH:
        (topic,) = body.topics
        (part,) = topic.partitions
        assert (topic.topic, part.partition, part.fetch_offset) == ("a", 2, 7)
        assert (body.replica_id, body.min_bytes, body.max_bytes) == (-1, 1, 1000)
        assert (body.isolation_level, part.partition_max_bytes) == (1, 1000)
        assert body.max_wait == datetime.timedelta(milliseconds=500)
    elif api is ApiKey.LIST_OFFSETS:
        (part,) = body.topics[0].partitions
        assert (part.partition_index, part.timestamp) == (2, -2)
        assert (body.topics[0].name, body.isolation_level) == ("a", 1)
    elif api is ApiKey.OFFSET_COMMIT:
        found = [(p.partition_index, p.committed_offset) for p in body.topics[0].partitions]
        assert (body.group_id, body.member_id, found) == ("g", "", [(0, 5), (1, 6)])
    elif api is ApiKey.CREATE_TOPICS:
        (topic,) = body.topics
        assert (topic.name, topic.num_partitions, topic.replication_factor) == ("a", 3, 1)
        assert [(each.name, each.value) for each in topic.configs] == [("retention.ms", "60000")]
        assert (body.timeout, body.validate_only) == (datetime.timedelta(seconds=1), False)
    elif api is ApiKey.DELETE_TOPICS:
        assert body.topic_names == ("a",)
    elif api is ApiKey.DESCRIBE_CONFIGS:
        (resource,) = body.resources
        assert (resource.resource_type, resource.resource_name) == (2, "a")
        assert (resource.configuration_keys, body.include_synonyms) == (None, False)
    elif api is ApiKey.LIST_TRANSACTIONS:
        assert (body.state_filters, body.producer_id_filters) == (("Ongoing",), ())
    else:
        assert body.transactional_ids == ("tx-1",)


def test_an_answer_about_nothing_makes_no_sense() -> None:
    empty = memoryview(bytes(4) + bytes(4))  # throttle time, no topics
    with pytest.raises(ProtocolError, match=r"LIST_OFFSETS v2 response: 0 results for one"):
        QUESTIONS[ApiKey.LIST_OFFSETS].decode(2, empty)


def test_a_fetch_of_a_throttled_client_brings_nothing_and_an_error_of_the_whole_is_told() -> None:
    """Over its quota, a consumer gets an answer without topics (KIP-219)."""
    for code in (0, 71):
        body = response(ApiKey.FETCH, 11, throttle_time=900, error_code=code)
        told, throttle_ms = QUESTIONS[ApiKey.FETCH].decode(11, body)
        assert (told.error_code, bytes(told.records), throttle_ms) == (code, b"", 900)
