"""The APIs and versions that kprod uses, and those that a broker supports.

Source: KIP-35 (negotiation), KIP-482 (flexible versions), the message schemas of Apache Kafka 4.2.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import IntEnum
from functools import cache
from types import MappingProxyType
from typing import NamedTuple

from kprod.errors import UnsupportedVersionError


class ApiKey(IntEnum):
    """Kafka's number for a kind of request."""

    PRODUCE = 0
    FETCH = 1
    LIST_OFFSETS = 2
    METADATA = 3
    OFFSET_COMMIT = 8
    OFFSET_FETCH = 9
    FIND_COORDINATOR = 10
    SASL_HANDSHAKE = 17
    API_VERSIONS = 18
    CREATE_TOPICS = 19
    DELETE_TOPICS = 20
    INIT_PRODUCER_ID = 22
    ADD_PARTITIONS_TO_TXN = 24
    ADD_OFFSETS_TO_TXN = 25
    END_TXN = 26
    TXN_OFFSET_COMMIT = 28
    DESCRIBE_CONFIGS = 32
    SASL_AUTHENTICATE = 36
    DESCRIBE_TRANSACTIONS = 65
    LIST_TRANSACTIONS = 66
    GET_TELEMETRY_SUBSCRIPTIONS = 71
    PUSH_TELEMETRY = 72

    __hash__ = int.__hash__  # Enum's is a slower Python function


class _Api(NamedTuple):
    """One row: the versions that kprod can use, and their differences."""

    first: int
    last: int
    flexible_from: int
    silent_from: int


_NEVER = 32_768

_APIS: Mapping[ApiKey, _Api] = MappingProxyType(
    {
        ApiKey.PRODUCE: _Api(3, 13, flexible_from=9, silent_from=6),
        # From 13 on it goes by ids of topics. Batches of zstd need 10.
        ApiKey.FETCH: _Api(4, 11, flexible_from=12, silent_from=8),
        ApiKey.LIST_OFFSETS: _Api(2, 3, flexible_from=6, silent_from=3),
        ApiKey.METADATA: _Api(4, 13, flexible_from=9, silent_from=6),
        ApiKey.OFFSET_COMMIT: _Api(3, 4, flexible_from=8, silent_from=4),
        # From 7 on open transactions are waited for; 8 and later ask for several groups.
        ApiKey.OFFSET_FETCH: _Api(7, 7, flexible_from=6, silent_from=4),
        # Version 0 knows the coordinators of groups only.
        ApiKey.FIND_COORDINATOR: _Api(1, 6, flexible_from=3, silent_from=2),
        # Version 0 announces messages that are not in frames of Kafka's (before Kafka 1.0).
        ApiKey.SASL_HANDSHAKE: _Api(1, 1, flexible_from=_NEVER, silent_from=_NEVER),
        ApiKey.API_VERSIONS: _Api(0, 4, flexible_from=3, silent_from=2),
        ApiKey.CREATE_TOPICS: _Api(2, 4, flexible_from=5, silent_from=3),
        ApiKey.DELETE_TOPICS: _Api(1, 3, flexible_from=4, silent_from=2),
        ApiKey.INIT_PRODUCER_ID: _Api(0, 5, flexible_from=2, silent_from=1),
        # From version 4 on the request is one brokers send each other.
        ApiKey.ADD_PARTITIONS_TO_TXN: _Api(0, 3, flexible_from=3, silent_from=1),
        ApiKey.ADD_OFFSETS_TO_TXN: _Api(0, 4, flexible_from=3, silent_from=1),
        ApiKey.END_TXN: _Api(0, 5, flexible_from=3, silent_from=1),
        ApiKey.TXN_OFFSET_COMMIT: _Api(0, 5, flexible_from=3, silent_from=1),
        ApiKey.DESCRIBE_CONFIGS: _Api(1, 2, flexible_from=4, silent_from=2),
        ApiKey.SASL_AUTHENTICATE: _Api(0, 2, flexible_from=2, silent_from=_NEVER),
        ApiKey.DESCRIBE_TRANSACTIONS: _Api(0, 0, flexible_from=0, silent_from=0),
        ApiKey.LIST_TRANSACTIONS: _Api(0, 0, flexible_from=0, silent_from=0),
        ApiKey.GET_TELEMETRY_SUBSCRIPTIONS: _Api(0, 0, flexible_from=0, silent_from=0),
        ApiKey.PUSH_TELEMETRY: _Api(0, 0, flexible_from=0, silent_from=0),
    }
)

SUPPORTED: Mapping[ApiKey, tuple[int, int]] = MappingProxyType(
    {api: (row.first, row.last) for api, row in _APIS.items()}
)
"""First and last version of each API that kprod can use."""

_AVOIDED = frozenset({(ApiKey.PRODUCE, 5)})
"""Produce 5 added LogStartOffset, but librdkafka's mock broker sends that only from 6 on, so its
version 5 responses cannot be decoded. No broker needs it: one that offers 5 also offers 4."""


@cache
def is_flexible(api: ApiKey, version: int) -> bool:
    """Whether this version of the request uses compact encodings and tagged fields."""
    return version >= _APIS[api].flexible_from


def asks_for_silence(api: ApiKey, version: int) -> bool:
    """Whether the client has to wait for the throttle time: older brokers delay the response."""
    return version >= _APIS[api].silent_from


class ApiVersions:
    """The versions that a broker offers. Immutable.

    ``ranges`` maps an API's number to its first and last version, including unknown APIs.
    ``features`` maps the cluster's finalized features to their levels as of ``features_epoch``,
    which is -1 if the broker sent none (KIP-584).
    """

    __slots__ = ("features", "features_epoch", "pick", "ranges")

    def __init__(
        self,
        ranges: Mapping[int, tuple[int, int]],
        features: Mapping[str, int] = MappingProxyType({}),
        features_epoch: int = -1,
    ) -> None:
        self.ranges: Mapping[int, tuple[int, int]] = MappingProxyType(dict(ranges))
        self.features: Mapping[str, int] = MappingProxyType(dict(features))
        self.features_epoch = features_epoch
        self.pick = cache(self._pick)

    def offers(self, api: ApiKey, cap: int | None = None) -> bool:
        """Whether broker and kprod share a version of the API, at most ``cap``."""
        try:
            self.pick(api, cap)
        except UnsupportedVersionError:
            return False
        return True

    def _pick(self, api: ApiKey, cap: int | None = None) -> int:
        """The newest version that broker and kprod share, at most ``cap``.

        Produce 5 is never picked (see ``_AVOIDED``). If there is no such version, raises
        UnsupportedVersionError with the API and both ranges.
        """
        ours = SUPPORTED[api]
        theirs = self.ranges.get(api)
        if theirs is None:
            raise UnsupportedVersionError(
                f"{api.name}: the broker does not offer it; kprod uses versions {_span(ours)}"
            )
        newest = min(ours[1], theirs[1]) if cap is None else min(ours[1], theirs[1], cap)
        for version in range(newest, max(ours[0], theirs[0]) - 1, -1):
            if (api, version) not in _AVOIDED:
                return version
        limit = "" if cap is None else f" (here at most {cap})"
        raise UnsupportedVersionError(
            f"{api.name}: the broker offers versions {_span(theirs)}, "
            f"kprod uses {_span(ours)}{limit}"
        )

    def __repr__(self) -> str:
        return f"ApiVersions({dict(self.ranges)!r})"


def _span(versions: tuple[int, int]) -> str:
    return f"{versions[0]}-{versions[1]}"
