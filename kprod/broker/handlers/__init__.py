"""One module per API: a parsed request in, the fields of the response out."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from kprod.broker.api_key import ApiKey
from kprod.broker.call import Handler, one_by_one
from kprod.broker.handlers.add_offsets_to_txn import add_offsets_to_txn
from kprod.broker.handlers.add_partitions_to_txn import add_partitions_to_txn
from kprod.broker.handlers.alter_configs import alter_configs, incremental_alter_configs
from kprod.broker.handlers.api_versions import api_versions
from kprod.broker.handlers.create_partitions import create_partitions
from kprod.broker.handlers.create_topics import create_topics
from kprod.broker.handlers.delete_groups import delete_groups
from kprod.broker.handlers.delete_records import delete_records
from kprod.broker.handlers.delete_topics import delete_topics
from kprod.broker.handlers.describe_cluster import describe_cluster
from kprod.broker.handlers.describe_configs import describe_configs
from kprod.broker.handlers.describe_groups import describe_groups
from kprod.broker.handlers.describe_producers import describe_producers
from kprod.broker.handlers.describe_transactions import describe_transactions
from kprod.broker.handlers.end_txn import end_txn
from kprod.broker.handlers.fetch import fetch
from kprod.broker.handlers.find_coordinator import find_coordinator
from kprod.broker.handlers.get_telemetry_subscriptions import get_telemetry_subscriptions
from kprod.broker.handlers.heartbeat import heartbeat
from kprod.broker.handlers.init_producer_id import init_producer_id
from kprod.broker.handlers.join_group import join_group
from kprod.broker.handlers.leave_group import leave_group
from kprod.broker.handlers.list_groups import list_groups
from kprod.broker.handlers.list_offsets import list_offsets
from kprod.broker.handlers.list_transactions import list_transactions
from kprod.broker.handlers.metadata import metadata
from kprod.broker.handlers.offset_commit import offset_commit
from kprod.broker.handlers.offset_delete import offset_delete
from kprod.broker.handlers.offset_fetch import offset_fetch
from kprod.broker.handlers.offset_for_leader_epoch import offset_for_leader_epoch
from kprod.broker.handlers.produce import produce
from kprod.broker.handlers.push_telemetry import push_telemetry
from kprod.broker.handlers.sasl_authenticate import sasl_authenticate
from kprod.broker.handlers.sasl_handshake import sasl_handshake
from kprod.broker.handlers.sync_group import sync_group
from kprod.broker.handlers.txn_offset_commit import txn_offset_commit

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
