"""Which APIs and versions kprod uses, and which of them a broker shares.

Source: KIP-35 (negotiation), KIP-482 (flexible versions), the message schemas of Apache Kafka 4.2.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import IntEnum
from types import MappingProxyType

from kprod.errors import UnsupportedVersionError


class ApiKey(IntEnum):
    """Kafka's number for a kind of request."""

    PRODUCE = 0
    FETCH = 1
    LIST_OFFSETS = 2
    METADATA = 3
    OFFSET_FETCH = 9
    FIND_COORDINATOR = 10
    SASL_HANDSHAKE = 17
    API_VERSIONS = 18
    CREATE_TOPICS = 19
    INIT_PRODUCER_ID = 22
    ADD_PARTITIONS_TO_TXN = 24
    ADD_OFFSETS_TO_TXN = 25
    END_TXN = 26
    TXN_OFFSET_COMMIT = 28
    DESCRIBE_CONFIGS = 32
    SASL_AUTHENTICATE = 36
    GET_TELEMETRY_SUBSCRIPTIONS = 71
    PUSH_TELEMETRY = 72


SUPPORTED: Mapping[ApiKey, tuple[int, int]] = MappingProxyType(
    {
        ApiKey.PRODUCE: (3, 13),
        ApiKey.FETCH: (4, 18),
        ApiKey.LIST_OFFSETS: (1, 11),
        ApiKey.METADATA: (4, 13),
        # From 7 on open transactions are waited for; 8 and later ask for several groups.
        ApiKey.OFFSET_FETCH: (7, 7),
        ApiKey.FIND_COORDINATOR: (1, 6),  # version 0 knows the coordinators of groups only
        # Version 0 announces messages that are not in frames of Kafka's (before Kafka 1.0).
        ApiKey.SASL_HANDSHAKE: (1, 1),
        ApiKey.API_VERSIONS: (0, 4),
        ApiKey.CREATE_TOPICS: (2, 7),
        ApiKey.INIT_PRODUCER_ID: (0, 5),
        # From version 4 on the request is one brokers send each other.
        ApiKey.ADD_PARTITIONS_TO_TXN: (0, 3),
        ApiKey.ADD_OFFSETS_TO_TXN: (0, 4),
        ApiKey.END_TXN: (0, 5),
        ApiKey.TXN_OFFSET_COMMIT: (0, 5),
        ApiKey.DESCRIBE_CONFIGS: (1, 4),
        ApiKey.SASL_AUTHENTICATE: (0, 2),
        ApiKey.GET_TELEMETRY_SUBSCRIPTIONS: (0, 0),
        ApiKey.PUSH_TELEMETRY: (0, 0),
    }
)
"""First and last version of each API that kprod can use."""

FLEXIBLE_FROM: Mapping[ApiKey, int] = MappingProxyType(
    {
        ApiKey.PRODUCE: 9,
        ApiKey.FETCH: 12,
        ApiKey.LIST_OFFSETS: 6,
        ApiKey.METADATA: 9,
        ApiKey.OFFSET_FETCH: 6,
        ApiKey.FIND_COORDINATOR: 3,
        ApiKey.API_VERSIONS: 3,
        ApiKey.CREATE_TOPICS: 5,
        ApiKey.INIT_PRODUCER_ID: 2,
        ApiKey.ADD_PARTITIONS_TO_TXN: 3,
        ApiKey.ADD_OFFSETS_TO_TXN: 3,
        ApiKey.END_TXN: 3,
        ApiKey.TXN_OFFSET_COMMIT: 3,
        ApiKey.DESCRIBE_CONFIGS: 4,
        ApiKey.SASL_AUTHENTICATE: 2,
        ApiKey.GET_TELEMETRY_SUBSCRIPTIONS: 0,
        ApiKey.PUSH_TELEMETRY: 0,
    }
)
"""First version with compact encodings and tagged fields; an API not listed has none."""

_SILENT_FROM: Mapping[ApiKey, int] = MappingProxyType(
    {
        ApiKey.PRODUCE: 6,
        ApiKey.FETCH: 8,
        ApiKey.LIST_OFFSETS: 3,
        ApiKey.METADATA: 6,
        ApiKey.OFFSET_FETCH: 4,
        ApiKey.FIND_COORDINATOR: 2,
        ApiKey.API_VERSIONS: 2,
        ApiKey.CREATE_TOPICS: 3,
        ApiKey.INIT_PRODUCER_ID: 1,
        ApiKey.ADD_PARTITIONS_TO_TXN: 1,
        ApiKey.ADD_OFFSETS_TO_TXN: 1,
        ApiKey.END_TXN: 1,
        ApiKey.TXN_OFFSET_COMMIT: 1,
        ApiKey.DESCRIBE_CONFIGS: 2,
        ApiKey.GET_TELEMETRY_SUBSCRIPTIONS: 0,
        ApiKey.PUSH_TELEMETRY: 0,
    }
)
"""First version that brokers answer at once; a throttled client is silent after it (KIP-219)."""

_NEVER = 32_768

_AVOIDED = frozenset({(ApiKey.PRODUCE, 5)})
"""Produce 5 brought LogStartOffset, but librdkafka's mock broker sends that only from 6 on, so its
answers to 5 cannot be read. No broker needs it: one that offers 5 also offers 4."""


def is_flexible(api: ApiKey, version: int) -> bool:
    """Whether this version of the request uses compact encodings and tagged fields."""
    return version >= FLEXIBLE_FROM.get(api, _NEVER)


def asks_for_silence(api: ApiKey, version: int) -> bool:
    """Whether a throttle time in the answer is still to come: older ones were held back for it."""
    return version >= _SILENT_FROM.get(api, _NEVER)


class ApiVersions:
    """The versions one broker offers. Immutable.

    ``ranges`` maps an API's number to its first and last version, as the broker told them: numbers
    kprod does not know are kept and do no harm. ``features`` maps the cluster's finalized features
    to their levels, as the broker knew them at ``features_epoch``, -1 when it told none (KIP-584).
    """

    __slots__ = ("_picked", "features", "features_epoch", "ranges")

    def __init__(
        self,
        ranges: Mapping[int, tuple[int, int]],
        features: Mapping[str, int] = MappingProxyType({}),
        features_epoch: int = -1,
    ) -> None:
        self.ranges: Mapping[int, tuple[int, int]] = MappingProxyType(dict(ranges))
        self.features: Mapping[str, int] = MappingProxyType(dict(features))
        self.features_epoch = features_epoch
        self._picked: dict[tuple[ApiKey, int | None], int] = {}  # a memory, and nothing else

    def offers(self, api: ApiKey) -> bool:
        """Whether broker and kprod share a version of it."""
        ours, theirs = SUPPORTED[api], self.ranges.get(api)
        return theirs is not None and max(ours[0], theirs[0]) <= min(ours[1], theirs[1])

    def pick(self, api: ApiKey, cap: int | None = None) -> int:
        """The newest version that broker and kprod share, at most ``cap``.

        Produce 5 is never picked (see ``_AVOIDED``). Raises UnsupportedVersionError naming the API
        and both ranges when there is none.
        """
        picked = self._picked.get((api, cap))
        if picked is None:
            picked = self._picked[api, cap] = self._pick(api, cap)
        return picked

    def _pick(self, api: ApiKey, cap: int | None) -> int:
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
