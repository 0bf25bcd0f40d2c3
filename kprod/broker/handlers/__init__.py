"""The answers to requests: a parsed request in, the fields of the response out."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from kprod.broker.handlers.clients import (
    api_versions,
    get_telemetry_subscriptions,
    push_telemetry,
    sasl_authenticate,
    sasl_handshake,
)
from kprod.broker.handlers.cluster import describe_cluster, find_coordinator, metadata
from kprod.broker.handlers.configs import alter_configs, describe_configs, incremental_alter_configs
from kprod.broker.handlers.fetch import fetch, list_offsets, offset_for_leader_epoch
from kprod.broker.handlers.groups import (
    delete_groups,
    describe_groups,
    heartbeat,
    join_group,
    leave_group,
    list_groups,
    sync_group,
)
from kprod.broker.handlers.offsets import (
    offset_commit,
    offset_delete,
    offset_fetch,
    txn_offset_commit,
)
from kprod.broker.handlers.produce import produce
from kprod.broker.handlers.topics import (
    create_partitions,
    create_topics,
    delete_records,
    delete_topics,
)
from kprod.broker.handlers.transactions import (
    add_offsets_to_txn,
    add_partitions_to_txn,
    describe_producers,
    describe_transactions,
    end_txn,
    init_producer_id,
    list_transactions,
)
from kprod.broker.node import Handler, one_by_one
from kprod.broker.protocol.api_key import ApiKey

HANDLERS: Final[Mapping[ApiKey, Handler]] = {
    ApiKey.PRODUCE: produce,
    ApiKey.FETCH: fetch,
    ApiKey.LIST_OFFSETS: list_offsets,
    ApiKey.METADATA: metadata,
    ApiKey.OFFSET_COMMIT: offset_commit,
    ApiKey.OFFSET_FETCH: offset_fetch,
    ApiKey.FIND_COORDINATOR: find_coordinator,
    ApiKey.JOIN_GROUP: join_group,
    ApiKey.HEARTBEAT: heartbeat,
    ApiKey.LEAVE_GROUP: leave_group,
    ApiKey.SYNC_GROUP: sync_group,
    ApiKey.SASL_HANDSHAKE: sasl_handshake,
    ApiKey.API_VERSIONS: api_versions,
    ApiKey.CREATE_TOPICS: one_by_one(create_topics),
    ApiKey.DELETE_TOPICS: one_by_one(delete_topics),
    ApiKey.INIT_PRODUCER_ID: init_producer_id,
    ApiKey.OFFSET_FOR_LEADER_EPOCH: offset_for_leader_epoch,
    ApiKey.DESCRIBE_CONFIGS: describe_configs,
    ApiKey.SASL_AUTHENTICATE: sasl_authenticate,
    ApiKey.CREATE_PARTITIONS: one_by_one(create_partitions),
    ApiKey.DESCRIBE_CLUSTER: describe_cluster,
    ApiKey.DELETE_RECORDS: delete_records,
    ApiKey.DESCRIBE_PRODUCERS: describe_producers,
    ApiKey.LIST_TRANSACTIONS: list_transactions,
    ApiKey.DESCRIBE_TRANSACTIONS: describe_transactions,
    ApiKey.TXN_OFFSET_COMMIT: txn_offset_commit,
    ApiKey.END_TXN: end_txn,
    ApiKey.ADD_PARTITIONS_TO_TXN: add_partitions_to_txn,
    ApiKey.ADD_OFFSETS_TO_TXN: add_offsets_to_txn,
    ApiKey.ALTER_CONFIGS: one_by_one(alter_configs),
    ApiKey.INCREMENTAL_ALTER_CONFIGS: one_by_one(incremental_alter_configs),
    ApiKey.DESCRIBE_GROUPS: describe_groups,
    ApiKey.LIST_GROUPS: list_groups,
    ApiKey.DELETE_GROUPS: delete_groups,
    ApiKey.OFFSET_DELETE: offset_delete,
    ApiKey.GET_TELEMETRY_SUBSCRIPTIONS: get_telemetry_subscriptions,
    ApiKey.PUSH_TELEMETRY: push_telemetry,
}
