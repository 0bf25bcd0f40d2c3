"""One request of every API, in the words of all its versions."""

from __future__ import annotations

from kprod.broker.protocol.api_key import VERSIONS, ApiKey
from kprod.broker.protocol.messages import Message
from tests.support.raw_batch import raw_batch

# Enough of each request that its handler has something to do.
REQUESTS: dict[ApiKey, Message] = {
    ApiKey.PRODUCE: {
        "acks": -1,
        "topic_data": [{"name": "t", "partition_data": [{"index": 0, "records": raw_batch()}]}],
    },
    ApiKey.FETCH: {
        "max_bytes": 1_000,
        "topics": [{"topic": "t", "partitions": [{"partition": 0, "partition_max_bytes": 100}]}],
    },
    ApiKey.LIST_OFFSETS: {
        "topics": [{"name": "t", "partitions": [{"partition_index": 0, "timestamp": -1}]}]
    },
    ApiKey.METADATA: {"topics": [{"name": "t"}]},
    ApiKey.OFFSET_COMMIT: {
        "group_id": "g",
        "topics": [{"name": "t", "partitions": [{"partition_index": 0}]}],
    },
    ApiKey.OFFSET_FETCH: {
        "group_id": "g",
        "topics": [{"name": "t", "partition_indexes": [0]}],
        "groups": [{"group_id": "g", "topics": [{"name": "t", "partition_indexes": [0]}]}],
    },
    ApiKey.FIND_COORDINATOR: {"key": "g", "coordinator_keys": ["g"]},
    ApiKey.JOIN_GROUP: {"group_id": "g", "protocol_type": "consumer"},
    ApiKey.HEARTBEAT: {"group_id": "g"},
    ApiKey.LEAVE_GROUP: {"group_id": "g"},
    ApiKey.SYNC_GROUP: {"group_id": "g"},
    ApiKey.DESCRIBE_GROUPS: {"groups": ["g"]},
    ApiKey.LIST_GROUPS: {},
    ApiKey.DELETE_GROUPS: {"groups_names": ["g"]},
    ApiKey.OFFSET_DELETE: {"group_id": "g"},
    ApiKey.SASL_HANDSHAKE: {"mechanism": "PLAIN"},
    ApiKey.SASL_AUTHENTICATE: {"auth_bytes": b"user"},
    ApiKey.DELETE_RECORDS: {
        "topics": [{"name": "t", "partitions": [{"partition_index": 0, "offset": -1}]}]
    },
    ApiKey.ALTER_CONFIGS: {"resources": [{"resource_type": 2, "resource_name": "t"}]},
    ApiKey.INCREMENTAL_ALTER_CONFIGS: {
        "resources": [
            {
                "resource_type": 2,
                "resource_name": "t",
                "configs": [{"name": "retention.ms", "value": "1"}],
            }
        ]
    },
    ApiKey.GET_TELEMETRY_SUBSCRIPTIONS: {},
    ApiKey.PUSH_TELEMETRY: {"metrics": b""},
    ApiKey.DESCRIBE_PRODUCERS: {"topics": [{"name": "t", "partition_indexes": [0]}]},
    ApiKey.ADD_PARTITIONS_TO_TXN: {
        "v3_and_below_transactional_id": "x",
        "v3_and_below_topics": [{"name": "t", "partitions": [0]}],
    },
    ApiKey.ADD_OFFSETS_TO_TXN: {"transactional_id": "x", "group_id": "g"},
    ApiKey.END_TXN: {"transactional_id": "x", "committed": True},
    ApiKey.TXN_OFFSET_COMMIT: {
        "transactional_id": "x",
        "group_id": "g",
        "topics": [{"name": "t", "partitions": [{"partition_index": 0}]}],
    },
    ApiKey.DESCRIBE_TRANSACTIONS: {"transactional_ids": ["x"]},
    ApiKey.LIST_TRANSACTIONS: {},
    ApiKey.API_VERSIONS: {"client_software_name": "n", "client_software_version": "1"},
    ApiKey.CREATE_TOPICS: {"topics": [{"name": "u", "num_partitions": 1, "replication_factor": 1}]},
    ApiKey.DELETE_TOPICS: {"topics": [{"name": "gone"}], "topic_names": ["gone"]},
    ApiKey.INIT_PRODUCER_ID: {"transactional_id": None, "producer_id": -1, "producer_epoch": -1},
    ApiKey.OFFSET_FOR_LEADER_EPOCH: {"topics": [{"topic": "t", "partitions": [{"partition": 0}]}]},
    ApiKey.DESCRIBE_CONFIGS: {"resources": [{"resource_type": 2, "resource_name": "t"}]},
    ApiKey.CREATE_PARTITIONS: {"topics": [{"name": "t", "count": 2}]},
    ApiKey.DESCRIBE_CLUSTER: {},
}
EVERY_VERSION = [
    (api, version)
    for api, span in VERSIONS.items()
    for version in range(span.accepted_from, span.highest + 1)
]
