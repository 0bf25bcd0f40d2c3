"""From the bytes of a request to the bytes of its response."""

from __future__ import annotations

import logging
import struct
from collections.abc import Mapping
from typing import Final

from kprod.broker.api_key import VERSIONS, ApiKey
from kprod.broker.call import Call, Handler, HangUp, Later
from kprod.broker.faulty_answer import FaultyReply, faulty_handler
from kprod.broker.handlers.api_versions import unknown_version
from kprod.broker.messages import Message, request_schema, response_schema
from kprod.broker.node import Node
from kprod.broker.quiet_log import QuietLog
from kprod.broker.reply import Reply
from kprod.broker.session import Session
from kprod.clock import SystemClock
from kprod.errors import ProtocolError
from kprod.types import BytesLike

BEFORE_AUTHENTICATION: Final[frozenset[ApiKey]] = frozenset(
    {ApiKey.API_VERSIONS, ApiKey.SASL_HANDSHAKE, ApiKey.SASL_AUTHENTICATE}
)
"""What a client may ask of a listener that authenticates, before it has logged in."""

MOST_ELEMENTS: Final = 100_000
"""Of all arrays of one request together, so that the memory it is read into has a bound."""
_HEADER_START: Final = struct.Struct(">hhi")
_complaints: Final = QuietLog(logging.getLogger(__name__), SystemClock())


class Dispatcher:
    """Hands each request to the handler of its API (Kafka: KafkaApis). Thread-safe.

    ``handlers`` may be any mapping, so that one can stand between the network and the real ones.
    """

    def __init__(self, node: Node, handlers: Mapping[ApiKey, Handler]) -> None:
        self._node = node
        self._handlers = handlers
        self._faults = node.faults

    def dispatch(self, frame: BytesLike, session: Session, reply: Reply) -> None:
        """Have the request in ``frame`` answered, now or later.

        Raises ``HangUp`` for bytes that are not a request, for APIs and versions that were not
        advertised (ApiVersions excepted: it answers every version), for what a client may not ask
        before it has logged in, and when a handler says so.
        """
        key, version, correlation_id = _start(frame)
        header = {"correlation_id": correlation_id}
        if key not in BEFORE_AUTHENTICATION:
            if not session.authenticated:
                raise HangUp(f"{key.name} before authentication")
            if self._node.clock.monotonic() >= session.expires:
                raise HangUp(f"{key.name} after the login had expired")
        if not self._faults.versions.get(key, VERSIONS[key]).accepts(version):
            if key is not ApiKey.API_VERSIONS:
                raise HangUp(f"{key.name} version {version} is not supported")
            reply.send(response_schema(key, 0).encode_parts(header, unknown_version()))
            return
        call = _parse(key, version, frame, session)
        handler = self._handlers[key]
        fault = self._faults.take(key, call.body, call.client_id, self._node.node_id)
        if fault is not None:
            handler = faulty_handler(fault, key, handler)
            reply = FaultyReply(fault, reply, self._node.timer)
        answer = handler(call, self._node)
        if answer is None:
            reply.send(())
        elif isinstance(answer, Later):
            answer.begin(lambda values: _send_late(reply, key, version, header, values))
        else:
            reply.send(response_schema(key, version).encode_parts(header, answer))


def _send_late(
    reply: Reply, key: ApiKey, version: int, header: Message, values: Message | Exception
) -> None:
    try:
        if isinstance(values, Exception):
            raise values
        parts = response_schema(key, version).encode_parts(header, values)
    except Exception:
        reply.hang_up("the broker met an unexpected error")
        _complaints.exception("no response for %s could be made", key.name)
        return
    reply.send(parts)


def _start(frame: BytesLike) -> tuple[ApiKey, int, int]:
    try:
        key, version, correlation_id = _HEADER_START.unpack_from(frame)
        return ApiKey(key), version, correlation_id
    except struct.error:
        raise HangUp(f"{len(frame)} bytes are not a request") from None
    except ValueError:
        raise HangUp(f"API {key} is not supported") from None


def _parse(key: ApiKey, version: int, frame: BytesLike, session: Session) -> Call:
    try:
        header, body = request_schema(key, version).decode(frame, MOST_ELEMENTS)
    except ProtocolError as error:
        raise HangUp(f"malformed {key.name} request, version {version}: {error}") from error
    return Call(version, header.client_id, body, session)
