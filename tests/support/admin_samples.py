"""Questions about topics, groups and transactions, and full answers to them, written by kio."""

from __future__ import annotations

from typing import Any

from kprod.wire import admin
from kprod.wire.admin import Question
from kprod.wire.versions import ApiKey
from tests.support.kio_messages import response

THROTTLE_MS = 250

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


ANSWERS: dict[ApiKey, dict[str, Any]] = {
    ApiKey.FETCH: {
        "responses": [
            {
                "topic": "a",
                "partitions": [
                    {
                        "partition_index": 2,
                        "high_watermark": 9,
                        "last_stable_offset": 8,
                        "log_start_offset": 1,
                        "aborted_transactions": [{"producer_id": 4000, "first_offset": 5}],
                        "preferred_read_replica": -1,
                        "records": b"records",
                    }
                ],
            }
        ]
    },
    ApiKey.LIST_OFFSETS: {
        "topics": [
            {"name": "a", "partitions": [{"partition_index": 2, "timestamp": -1, "offset": 9}]}
        ]
    },
    ApiKey.OFFSET_COMMIT: {
        "topics": [
            {
                "name": "a",
                "partitions": [
                    {"partition_index": 0, "error_code": 0},
                    {"partition_index": 1, "error_code": 25},
                ],
            }
        ]
    },
    ApiKey.CREATE_TOPICS: {
        "topics": [{"name": "a", "error_code": 36, "error_message": "it is there"}]
    },
    ApiKey.DELETE_TOPICS: {"responses": [{"name": "a", "error_code": 3}]},
    ApiKey.DESCRIBE_CONFIGS: {
        "results": [
            {
                "error_message": None,
                "resource_type": 2,
                "resource_name": "a",
                "configs": [
                    {
                        "name": option,
                        "value": value,
                        "config_source": source,
                        "is_sensitive": value is None,
                        "synonyms": [{"name": "log.retention.ms", "value": None, "source": 5}],
                    }
                    for option, value, source in (
                        ("retention.ms", "60000", 1),
                        ("ssl.key.password", None, 1),
                        ("segment.bytes", "1", 5),
                    )
                ],
            }
        ]
    },
    ApiKey.LIST_TRANSACTIONS: {
        "unknown_state_filters": ["Odd"],
        "transaction_states": [
            {"transactional_id": each, "producer_id": 4000, "transaction_state": "Ongoing"}
            for each in ("tx-1", "tx-2")
        ],
    },
    ApiKey.DESCRIBE_TRANSACTIONS: {
        "transaction_states": [
            {
                "transactional_id": "tx-1",
                "transaction_state": "Ongoing",
                "transaction_timeout": 60_000,
                "transaction_start_time": 1_700_000_000_000,
                "producer_id": 4000,
                "producer_epoch": 3,
                "topics": [{"topic": "a", "partitions": [2, 0]}],
            }
        ]
    },
}


def admin_response(api: ApiKey, version: int) -> memoryview:
    return response(api, version, throttle_time=THROTTLE_MS, **ANSWERS[api])
