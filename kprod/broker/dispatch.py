"""From the bytes of a request to the bytes of its response."""

from __future__ import annotations

import logging
import struct
from collections.abc import Mapping
from typing import Final

from kprod.broker.api_key import VERSIONS, ApiKey
from kprod.broker.call import Call, Handler, HangUp
from kprod.broker.handlers.api_versions import unknown_version
from kprod.broker.messages import request_schema, response_schema
from kprod.broker.node import Node
from kprod.errors import ProtocolError

_HEADER_START: Final = struct.Struct(">hhi")
_log = logging.getLogger(__name__)


class Dispatcher:
    """Hands each request to the handler of its API (Kafka: KafkaApis). Thread-safe.

    ``handlers`` may be any mapping, so that one can stand between the network and the real ones.
    """

    def __init__(self, node: Node, handlers: Mapping[ApiKey, Handler]) -> None:
        self._node = node
        self._handlers = handlers

    def answer(self, frame: bytes) -> bytes | None:
        """The response frame, or None when there is none to send.

        Raises ``HangUp`` for bytes that are not a request, for APIs and versions that were not
        advertised (ApiVersions excepted: it answers every version), and when a handler says so.
        """
        key, version, correlation_id = _start(frame)
        if not VERSIONS[key].accepts(version):
            if key is not ApiKey.API_VERSIONS:
                raise HangUp(f"{key.name} version {version} is not supported")
            return response_schema(key, 0).encode(_header(correlation_id), unknown_version())
        values = self._handlers[key](_parse(key, version, frame), self._node)
        if values is None:
            return None
        return response_schema(key, version).encode(_header(correlation_id), values)


def _start(frame: bytes) -> tuple[ApiKey, int, int]:
    try:
        key, version, correlation_id = _HEADER_START.unpack_from(frame)
        return ApiKey(key), version, correlation_id
    except struct.error:
        raise HangUp(f"{len(frame)} bytes are not a request") from None
    except ValueError:
        raise HangUp(f"API {key} is not supported") from None


def _header(correlation_id: int) -> dict[str, int]:
    return {"correlation_id": correlation_id}


def _parse(key: ApiKey, version: int, frame: bytes) -> Call:
    try:
        header, body = request_schema(key, version).decode(frame)
    except ProtocolError as error:
        raise HangUp(f"malformed {key.name} request, version {version}: {error}") from error
    return Call(version, header.client_id, body)
