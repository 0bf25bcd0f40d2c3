"""The APIs the embedded broker knows, and which versions of them it takes."""

from __future__ import annotations

import enum
from typing import Final, NamedTuple


class ApiKey(enum.IntEnum):
    """Kafka's numbers."""

    PRODUCE = 0
    FETCH = 1
    LIST_OFFSETS = 2
    METADATA = 3
    OFFSET_COMMIT = 8
    OFFSET_FETCH = 9
    FIND_COORDINATOR = 10
    JOIN_GROUP = 11
    HEARTBEAT = 12
    LEAVE_GROUP = 13
    SYNC_GROUP = 14
    DESCRIBE_GROUPS = 15
    LIST_GROUPS = 16
    SASL_HANDSHAKE = 17
    API_VERSIONS = 18
    CREATE_TOPICS = 19
    DELETE_TOPICS = 20
    DELETE_RECORDS = 21
    INIT_PRODUCER_ID = 22
    OFFSET_FOR_LEADER_EPOCH = 23
    ADD_PARTITIONS_TO_TXN = 24
    ADD_OFFSETS_TO_TXN = 25
    END_TXN = 26
    TXN_OFFSET_COMMIT = 28
    DESCRIBE_CONFIGS = 32
    ALTER_CONFIGS = 33
    SASL_AUTHENTICATE = 36
    CREATE_PARTITIONS = 37
    DELETE_GROUPS = 42
    INCREMENTAL_ALTER_CONFIGS = 44
    OFFSET_DELETE = 47
    DESCRIBE_CLUSTER = 60
    DESCRIBE_PRODUCERS = 61
    DESCRIBE_TRANSACTIONS = 65
    LIST_TRANSACTIONS = 66
    GET_TELEMETRY_SUBSCRIPTIONS = 71
    PUSH_TELEMETRY = 72


class VersionRange(NamedTuple):
    """From ``lowest`` to ``highest``, both included; ``accepted_from`` may be above ``lowest``."""

    lowest: int
    highest: int
    accepted_from: int

    def accepts(self, version: int) -> bool:
        """Whether a request of this version is read."""
        return self.accepted_from <= version <= self.highest


def _both(lowest: int, highest: int) -> VersionRange:
    return VersionRange(lowest, highest, lowest)


VERSIONS: Final[dict[ApiKey, VersionRange]] = {
    # Advertised from 0 although record batches need 3: librdkafka turns compression off
    # otherwise (KAFKA-18659). Kafka 4 does the same.
    ApiKey.PRODUCE: VersionRange(0, 13, 3),
    ApiKey.FETCH: _both(4, 17),
    ApiKey.LIST_OFFSETS: _both(1, 10),
    ApiKey.METADATA: _both(0, 13),
    ApiKey.OFFSET_COMMIT: _both(2, 9),
    ApiKey.OFFSET_FETCH: _both(1, 9),
    ApiKey.FIND_COORDINATOR: _both(0, 6),
    ApiKey.JOIN_GROUP: _both(0, 9),
    ApiKey.HEARTBEAT: _both(0, 4),
    ApiKey.LEAVE_GROUP: _both(0, 5),
    ApiKey.SYNC_GROUP: _both(0, 5),
    ApiKey.DESCRIBE_GROUPS: _both(0, 6),
    ApiKey.LIST_GROUPS: _both(0, 5),
    ApiKey.SASL_HANDSHAKE: _both(1, 1),
    ApiKey.API_VERSIONS: _both(0, 4),
    ApiKey.CREATE_TOPICS: _both(2, 7),
    ApiKey.DELETE_TOPICS: _both(1, 6),
    ApiKey.INIT_PRODUCER_ID: _both(0, 5),
    ApiKey.OFFSET_FOR_LEADER_EPOCH: _both(2, 4),
    ApiKey.DESCRIBE_CONFIGS: _both(1, 4),
    ApiKey.SASL_AUTHENTICATE: _both(0, 2),
    ApiKey.CREATE_PARTITIONS: _both(0, 3),
    ApiKey.DELETE_GROUPS: _both(0, 2),
    ApiKey.OFFSET_DELETE: _both(0, 0),
    ApiKey.DESCRIBE_CLUSTER: _both(0, 2),
    ApiKey.DELETE_RECORDS: _both(0, 2),
    ApiKey.ALTER_CONFIGS: _both(0, 2),
    ApiKey.INCREMENTAL_ALTER_CONFIGS: _both(0, 1),
    ApiKey.DESCRIBE_PRODUCERS: _both(0, 0),
    # From version 4 on it is for brokers, which have no need of it here.
    ApiKey.ADD_PARTITIONS_TO_TXN: _both(0, 3),
    ApiKey.ADD_OFFSETS_TO_TXN: _both(0, 4),
    ApiKey.END_TXN: _both(0, 5),
    ApiKey.TXN_OFFSET_COMMIT: _both(0, 5),
    ApiKey.DESCRIBE_TRANSACTIONS: _both(0, 0),
    ApiKey.LIST_TRANSACTIONS: _both(0, 2),
    # Offered while somebody has subscribed to metrics of clients.
    ApiKey.GET_TELEMETRY_SUBSCRIPTIONS: _both(0, 0),
    ApiKey.PUSH_TELEMETRY: _both(0, 0),
}
"""One consistent set: kafka-python guesses the broker's release from the highest versions, and
librdkafka derives features from the presence of APIs (lz4 needs FindCoordinator, for instance)."""
