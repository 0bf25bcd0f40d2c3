"""Questions about topics, groups and transactions, and full answers to them, written by kio."""

from __future__ import annotations

import datetime
from typing import Any

from kio.schema.errors import ErrorCode

from kprod.wire import admin
from kprod.wire.admin import Question
from kprod.wire.versions import ApiKey
from tests.support.kio_messages import build, encode, response_schema

THROTTLE = datetime.timedelta(milliseconds=250)
STARTED = datetime.datetime.fromtimestamp(1_700_000_000, datetime.UTC)

QUESTIONS: dict[ApiKey, Question[Any]] = {
    question.api: question
    for question in (
        admin.fetch("a", 2, 7, most=1000, wait_ms=500, committed=True),
        admin.list_offset("a", 2, admin.EARLIEST, committed=True),
        admin.commit_offsets("g", "a", {0: 5, 1: 6}),
        admin.create_topic("a", 3, 1, {"retention.ms": "60000"}, 1000),
        admin.delete_topic("a", 1000),
        admin.topic_options("a"),
        admin.list_transactions(["Ongoing"]),
        admin.describe_transactions(["tx-1"]),
    )
}


def admin_response(api: ApiKey, version: int) -> memoryview:
    """A full answer to the question of ``QUESTIONS``."""
    schema = response_schema(api, version)
    values: dict[str, Any] = {"error_code": ErrorCode.none}
    if api is ApiKey.FETCH:
        name = "FetchResponse"
        aborted = schema.AbortedTransaction(producer_id=4000, first_offset=5)
        part = build(
            schema.PartitionData,
            partition_index=2,
            error_code=ErrorCode.none,
            high_watermark=9,
            last_stable_offset=8,
            log_start_offset=1,
            aborted_transactions=(aborted,),
            preferred_read_replica=-1,
            records=b"records",
        )
        topic = schema.FetchableTopicResponse(topic="a", partitions=(part,))
        values |= {"session_id": 0, "responses": (topic,)}
    elif api is ApiKey.LIST_OFFSETS:
        name = "ListOffsetsResponse"
        part = schema.ListOffsetsPartitionResponse(
            partition_index=2, error_code=ErrorCode.none, timestamp=-1, offset=9
        )
        values["topics"] = (schema.ListOffsetsTopicResponse(name="a", partitions=(part,)),)
    elif api is ApiKey.OFFSET_COMMIT:
        name = "OffsetCommitResponse"
        parts = tuple(
            schema.OffsetCommitResponsePartition(partition_index=at, error_code=ErrorCode(code))
            for at, code in ((0, 0), (1, 25))
        )
        values["topics"] = (schema.OffsetCommitResponseTopic(name="a", partitions=parts),)
    elif api is ApiKey.CREATE_TOPICS:
        name = "CreateTopicsResponse"
        refused = schema.CreatableTopicResult(
            name="a", error_code=ErrorCode(36), error_message="it is there"
        )
        values["topics"] = (refused,)
    elif api is ApiKey.DELETE_TOPICS:
        name = "DeleteTopicsResponse"
        values["responses"] = (schema.DeletableTopicResult(name="a", error_code=ErrorCode(3)),)
    elif api is ApiKey.DESCRIBE_CONFIGS:
        name = "DescribeConfigsResponse"
        synonym = schema.DescribeConfigsSynonym(name="log.retention.ms", value=None, source=5)
        options = tuple(
            schema.DescribeConfigsResourceResult(
                name=option,
                value=value,
                read_only=False,
                config_source=source,
                is_sensitive=value is None,
                synonyms=(synonym,),
            )
            for option, value, source in (
                ("retention.ms", "60000", 1),
                ("ssl.key.password", None, 1),
                ("segment.bytes", "1", 5),
            )
        )
        values["results"] = (
            schema.DescribeConfigsResult(
                error_code=ErrorCode.none,
                error_message=None,
                resource_type=2,
                resource_name="a",
                configs=options,
            ),
        )
    elif api is ApiKey.LIST_TRANSACTIONS:
        name = "ListTransactionsResponse"
        states = tuple(
            schema.TransactionState(
                transactional_id=each, producer_id=4000, transaction_state="Ongoing"
            )
            for each in ("tx-1", "tx-2")
        )
        values |= {"unknown_state_filters": ("Odd",), "transaction_states": states}
    else:
        name = "DescribeTransactionsResponse"
        state = schema.TransactionState(
            error_code=ErrorCode.none,
            transactional_id="tx-1",
            transaction_state="Ongoing",
            transaction_timeout=datetime.timedelta(minutes=1),
            transaction_start_time=STARTED,
            producer_id=4000,
            producer_epoch=3,
            topics=(schema.TopicData(topic="a", partitions=(2, 0)),),
        )
        values["transaction_states"] = (state,)
    return encode(build(getattr(schema, name), throttle_time=THROTTLE, **values))
