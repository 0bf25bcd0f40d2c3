"""ApiVersions (18): which versions of which APIs there are."""

from __future__ import annotations

import re
from typing import Final

from kio.schema.errors import ErrorCode

from kprod.broker.api_key import VERSIONS, ApiKey
from kprod.broker.call import Call
from kprod.broker.messages import Message
from kprod.broker.node import Node

_SOFTWARE: Final = re.compile(r"[a-zA-Z0-9](?:[a-zA-Z0-9\-.]*[a-zA-Z0-9])?")
_FIRST_WITH_SOFTWARE: Final = 3


def api_versions(call: Call, node: Node) -> Message:
    """All ranges; 42 and none for a client whose name or version is malformed (KIP-511)."""
    if call.version >= _FIRST_WITH_SOFTWARE:
        software = (call.body.client_software_name, call.body.client_software_version)
        if not all(map(_SOFTWARE.fullmatch, software)):
            return {"error_code": ErrorCode.invalid_request}
    return {"api_keys": [_range(key) for key in VERSIONS]}


def unknown_version() -> Message:
    """The answer, at version 0, to a version from the future: come back with one of these."""
    return {
        "error_code": ErrorCode.unsupported_version,
        "api_keys": [_range(ApiKey.API_VERSIONS)],
    }


def _range(key: ApiKey) -> Message:
    found = VERSIONS[key]
    return {"api_key": key, "min_version": found.lowest, "max_version": found.highest}
