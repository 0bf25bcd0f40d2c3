"""ApiVersions (18): which versions of which APIs there are."""

from __future__ import annotations

import re
from typing import Final

from kio.schema.errors import ErrorCode

from kprod.broker.api_key import VERSIONS, ApiKey, VersionRange
from kprod.broker.call import Call
from kprod.broker.messages import Message
from kprod.broker.node import Node
from kprod.broker.transactions.transaction_config import HIGHEST_VERSION

_SOFTWARE: Final = re.compile(r"[a-zA-Z0-9](?:[a-zA-Z0-9\-.]*[a-zA-Z0-9])?")
_FIRST_WITH_SOFTWARE: Final = 3
_FIRST_WITH_ZERO: Final = 4
_TELEMETRY: Final = {ApiKey.GET_TELEMETRY_SUBSCRIPTIONS, ApiKey.PUSH_TELEMETRY}
_TRANSACTIONS: Final = "transaction.version"


def api_versions(call: Call, node: Node) -> Message:
    """All ranges and features; 42 and none for a client whose name is malformed (KIP-511)."""
    if call.version >= _FIRST_WITH_SOFTWARE:
        software = (call.body.client_software_name, call.body.client_software_version)
        if not all(map(_SOFTWARE.fullmatch, software)):
            return {"error_code": ErrorCode.invalid_request}
    limited = node.faults.versions
    offered = VERSIONS if node.client_metrics.offered else VERSIONS.keys() - _TELEMETRY
    return {
        "api_keys": [
            _range(key, limited.get(key, VERSIONS[key])) for key in VERSIONS if key in offered
        ],
        **_features(call.version, node.transactions.version),
        "finalized_features_epoch": node.transactions.features_epoch,
    }


def _features(version: int, level: int) -> Message:
    """The features of the cluster (KIP-584), of which we have one; level 0 is not finalized."""
    supported = {"name": _TRANSACTIONS, "min_version": 0, "max_version": HIGHEST_VERSION}
    finalized = {"name": _TRANSACTIONS, "min_version_level": level, "max_version_level": level}
    return {
        # Some clients cannot read a lowest version of 0: those that ask by version 3 (KAFKA-17492).
        "supported_features": [supported] if version >= _FIRST_WITH_ZERO else [],
        "finalized_features": [finalized] if level else [],
    }


def unknown_version() -> Message:
    """The answer, at version 0, to a version from the future: come back with one of these."""
    return {
        "error_code": ErrorCode.unsupported_version,
        "api_keys": [_range(ApiKey.API_VERSIONS, VERSIONS[ApiKey.API_VERSIONS])],
    }


def _range(key: ApiKey, found: VersionRange) -> Message:
    return {"api_key": key, "min_version": found.lowest, "max_version": found.highest}
