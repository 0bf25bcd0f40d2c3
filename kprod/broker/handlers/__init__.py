"""The handlers of requests: each takes a parsed request and returns the fields of the response."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from kprod.broker.handlers import (
    clients,
    cluster,
    configs,
    fetch,
    groups,
    offsets,
    produce,
    topics,
    transactions,
)
from kprod.broker.node import Handler, one_by_one
from kprod.broker.protocol.api_key import ApiKey

HANDLERS: Final[Mapping[ApiKey, Handler]] = {
    ApiKey.PRODUCE: produce.produce,
    ApiKey.FETCH: fetch.fetch,
    ApiKey.LIST_OFFSETS: fetch.list_offsets,
    ApiKey.METADATA: cluster.metadata,
    ApiKey.OFFSET_COMMIT: offsets.offset_commit,
    ApiKey.OFFSET_FETCH: offsets.offset_fetch,
    ApiKey.FIND_COORDINATOR: cluster.find_coordinator,
    ApiKey.JOIN_GROUP: groups.join_group,
    ApiKey.HEARTBEAT: groups.heartbeat,
    ApiKey.LEAVE_GROUP: groups.leave_group,
    ApiKey.SYNC_GROUP: groups.sync_group,
    ApiKey.SASL_HANDSHAKE: clients.sasl_handshake,
    ApiKey.API_VERSIONS: clients.api_versions,
    ApiKey.CREATE_TOPICS: one_by_one(topics.create_topics),
    ApiKey.DELETE_TOPICS: one_by_one(topics.delete_topics),
    ApiKey.INIT_PRODUCER_ID: transactions.init_producer_id,
    ApiKey.OFFSET_FOR_LEADER_EPOCH: fetch.offset_for_leader_epoch,
    ApiKey.DESCRIBE_CONFIGS: configs.describe_configs,
    ApiKey.SASL_AUTHENTICATE: clients.sasl_authenticate,
    ApiKey.CREATE_PARTITIONS: one_by_one(topics.create_partitions),
    ApiKey.DESCRIBE_CLUSTER: cluster.describe_cluster,
    ApiKey.DELETE_RECORDS: topics.delete_records,
    ApiKey.DESCRIBE_PRODUCERS: transactions.describe_producers,
    ApiKey.LIST_TRANSACTIONS: transactions.list_transactions,
    ApiKey.DESCRIBE_TRANSACTIONS: transactions.describe_transactions,
    ApiKey.TXN_OFFSET_COMMIT: offsets.txn_offset_commit,
    ApiKey.END_TXN: transactions.end_txn,
    ApiKey.ADD_PARTITIONS_TO_TXN: transactions.add_partitions_to_txn,
    ApiKey.ADD_OFFSETS_TO_TXN: transactions.add_offsets_to_txn,
    ApiKey.ALTER_CONFIGS: one_by_one(configs.alter_configs),
    ApiKey.INCREMENTAL_ALTER_CONFIGS: one_by_one(configs.incremental_alter_configs),
    ApiKey.DESCRIBE_GROUPS: groups.describe_groups,
    ApiKey.LIST_GROUPS: groups.list_groups,
    ApiKey.DELETE_GROUPS: groups.delete_groups,
    ApiKey.OFFSET_DELETE: offsets.offset_delete,
    ApiKey.GET_TELEMETRY_SUBSCRIPTIONS: clients.get_telemetry_subscriptions,
    ApiKey.PUSH_TELEMETRY: clients.push_telemetry,
}
