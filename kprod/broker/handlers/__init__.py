"""One module per API: a parsed request in, the fields of the response out."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from kprod.broker.api_key import ApiKey
from kprod.broker.call import Handler
from kprod.broker.handlers.api_versions import api_versions
from kprod.broker.handlers.create_partitions import create_partitions
from kprod.broker.handlers.create_topics import create_topics
from kprod.broker.handlers.delete_topics import delete_topics
from kprod.broker.handlers.describe_cluster import describe_cluster
from kprod.broker.handlers.describe_configs import describe_configs
from kprod.broker.handlers.fetch import fetch
from kprod.broker.handlers.find_coordinator import find_coordinator
from kprod.broker.handlers.groups import heartbeat, join_group, leave_group, sync_group
from kprod.broker.handlers.init_producer_id import init_producer_id
from kprod.broker.handlers.list_offsets import list_offsets
from kprod.broker.handlers.metadata import metadata
from kprod.broker.handlers.offset_commit import offset_commit
from kprod.broker.handlers.offset_fetch import offset_fetch
from kprod.broker.handlers.offset_for_leader_epoch import offset_for_leader_epoch
from kprod.broker.handlers.produce import produce

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
    ApiKey.API_VERSIONS: api_versions,
    ApiKey.CREATE_TOPICS: create_topics,
    ApiKey.DELETE_TOPICS: delete_topics,
    ApiKey.INIT_PRODUCER_ID: init_producer_id,
    ApiKey.OFFSET_FOR_LEADER_EPOCH: offset_for_leader_epoch,
    ApiKey.DESCRIBE_CONFIGS: describe_configs,
    ApiKey.CREATE_PARTITIONS: create_partitions,
    ApiKey.DESCRIBE_CLUSTER: describe_cluster,
}
