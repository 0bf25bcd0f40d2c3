"""The APIs that the embedded broker supports, and their versions."""

from __future__ import annotations

import enum
from typing import Final, NamedTuple, Self


class VersionRange(NamedTuple):
    """The versions of an API: those from ``lowest`` to ``highest`` are advertised.

    Requests of versions below ``accepted_from`` are refused even if the version is advertised.
    """

    lowest: int
    highest: int
    accepted_from: int

    def accepts(self, version: int) -> bool:
        """Whether the broker accepts requests of this version."""
        return self.accepted_from <= version <= self.highest


class ApiKey(enum.IntEnum):
    """The APIs that the broker supports, with Kafka's numbers.

    Each is defined by its number, the lowest and the highest advertised version, and the first
    accepted version if that is not the lowest.

    Clients draw conclusions from the versions, so these must be consistent: kafka-python guesses
    the broker's release from the highest versions, and librdkafka derives features from the
    presence of APIs (lz4, for example, needs FindCoordinator).
    """

    versions: VersionRange

    def __new__(cls, key: int, lowest: int = 0, highest: int = -1, first: int = -1) -> Self:
        made = int.__new__(cls, key)
        made._value_ = key
        made.versions = VersionRange(lowest, highest, max(lowest, first))
        return made

    # Advertised from 0 although record batches need 3: librdkafka turns compression off
    # otherwise (KAFKA-18659). Kafka 4 does the same.
    PRODUCE = 0, 0, 13, 3
    FETCH = 1, 4, 17
    LIST_OFFSETS = 2, 1, 10
    METADATA = 3, 0, 13
    OFFSET_COMMIT = 8, 2, 9
    OFFSET_FETCH = 9, 1, 9
    FIND_COORDINATOR = 10, 0, 6
    JOIN_GROUP = 11, 0, 9
    HEARTBEAT = 12, 0, 4
    LEAVE_GROUP = 13, 0, 5
    SYNC_GROUP = 14, 0, 5
    DESCRIBE_GROUPS = 15, 0, 6
    LIST_GROUPS = 16, 0, 5
    SASL_HANDSHAKE = 17, 1, 1
    API_VERSIONS = 18, 0, 4
    CREATE_TOPICS = 19, 2, 7
    DELETE_TOPICS = 20, 1, 6
    DELETE_RECORDS = 21, 0, 2
    INIT_PRODUCER_ID = 22, 0, 5
    OFFSET_FOR_LEADER_EPOCH = 23, 2, 4
    # From version 4 on it is for brokers, which have no need of it here.
    ADD_PARTITIONS_TO_TXN = 24, 0, 3
    ADD_OFFSETS_TO_TXN = 25, 0, 4
    END_TXN = 26, 0, 5
    TXN_OFFSET_COMMIT = 28, 0, 5
    DESCRIBE_CONFIGS = 32, 1, 4
    ALTER_CONFIGS = 33, 0, 2
    SASL_AUTHENTICATE = 36, 0, 2
    CREATE_PARTITIONS = 37, 0, 3
    DELETE_GROUPS = 42, 0, 2
    INCREMENTAL_ALTER_CONFIGS = 44, 0, 1
    OFFSET_DELETE = 47, 0, 0
    DESCRIBE_CLUSTER = 60, 0, 2
    DESCRIBE_PRODUCERS = 61, 0, 0
    DESCRIBE_TRANSACTIONS = 65, 0, 0
    LIST_TRANSACTIONS = 66, 0, 2
    # Offered while the broker has a subscription to metrics of clients.
    GET_TELEMETRY_SUBSCRIPTIONS = 71, 0, 0
    PUSH_TELEMETRY = 72, 0, 0


VERSIONS: Final[dict[ApiKey, VersionRange]] = {key: key.versions for key in ApiKey}
