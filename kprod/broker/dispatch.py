"""Passes requests to their handlers, applies injected faults, and encodes the responses."""

from __future__ import annotations

import logging
import struct
import uuid
from collections.abc import Mapping, Sequence
from typing import Any, Final

from kio.index import load_response_schema

from kprod.broker.faults import Fault
from kprod.broker.handler_pool import QuietLog
from kprod.broker.handlers.clients import unknown_version
from kprod.broker.network.connection import HangUp
from kprod.broker.network.listener import Session
from kprod.broker.network.network_thread import Reply
from kprod.broker.network.stream import Part
from kprod.broker.node import Call, Handler, Later, Node
from kprod.broker.protocol.api_key import VERSIONS, ApiKey
from kprod.broker.protocol.message_reader import field_shapes
from kprod.broker.protocol.messages import Message, request_schema, response_schema
from kprod.broker.purgatory import Timer
from kprod.broker.records.file_slice import in_memory
from kprod.clock import SystemClock
from kprod.errors import BrokerError, ProtocolError
from kprod.types import BytesLike

_CODES: Final = ("error_code", "partition_error_code")
_TOP: Final = frozenset({ApiKey.METADATA})
"""Responses in which clients check the errors of topics, not of partitions."""


def faulty_handler(fault: Fault, key: ApiKey, handler: Handler) -> Handler:
    """Wrap a handler so that its answer has the fault's error code and throttle time."""

    def answer(call: Call, node: Node) -> Message | Later | None:
        entity = load_response_schema(key, call.version)
        if fault.error is not None and not fault.after_append:
            if key is ApiKey.PRODUCE and call.body.acks == 0:
                return None
            return change(_skeleton(call.body, entity), entity)
        found = handler(call, node)
        if isinstance(found, Later):
            begin = found.begin
            return Later(lambda give: begin(lambda late: give(late_change(late, entity))))
        return found if found is None else change(found, entity)

    def late_change(late: Message | Exception, entity: Any) -> Message | Exception:
        return late if isinstance(late, Exception) else change(late, entity)

    def change(values: Message, entity: Any) -> Message:
        if fault.error is not None:
            values = _with_error(values, entity, fault.error, top=key in _TOP)
        if fault.throttle_ms is not None:
            values = {**values, "throttle_time": fault.throttle_ms}
        return values

    return answer


def _with_error(values: Message, entity: Any, code: int, *, top: bool) -> Message:
    """Return the answer with the error code in each innermost struct that has such a field.

    With ``top``, set the code in the topics instead, and remove their partitions.
    """
    changed = dict(values)
    deeper = False
    own = False
    for shape in field_shapes(entity):
        if shape.name in _CODES:
            own = True
        elif shape.struct is not None and shape.is_array and _has_error(shape.struct):
            nested = values.get(shape.name) or ()
            changed[shape.name] = [_with_error(v, shape.struct, code, top=False) for v in nested]
            if top:
                for entry in changed[shape.name]:
                    entry.update(error_code=code, partitions=())
            deeper = deeper or bool(nested)
        elif shape.name == "base_offset":
            changed["base_offset"] = -1
    if own and not deeper:
        changed.update(dict.fromkeys(_CODES, code))
    return changed


def _has_error(entity: Any) -> bool:
    return any(
        shape.name in _CODES or (shape.struct is not None and _has_error(shape.struct))
        for shape in field_shapes(entity)
    )


_SAME: Final[Mapping[str, tuple[str, ...]]] = {
    **{name: (name,) for name in ("name", "topic", "topic_id", "group_id", "partition_index")},
    "index": ("index",),
    "partition": ("partition",),
    "topics": ("topics",),
    "groups": ("groups",),
    "partitions": ("partitions", "partition_indexes"),
    "responses": ("topics", "topic_data"),
    "partition_responses": ("partition_data",),
    "coordinators": ("coordinator_keys",),
    "transaction_states": ("transactional_ids",),
    "results_by_topic_v3_and_below": ("v3_and_below_topics",),
    "results_by_partition": ("partitions",),
}
"""The fields of answers that identify topics and partitions, and their names in requests."""
_SCALARS: Final = ("name", "group_id", "key", "transactional_id", "partition_index")
"""The fields of an answer that may hold a request element that is a plain value."""
_NONE: Final = ("generation_id", "producer_id", "producer_epoch", "node_id", "port")


def _skeleton(asked: Any, entity: Any) -> dict[str, Any]:
    """Return an answer with the topics and partitions of a request, but otherwise empty."""
    found: dict[str, Any] = {}
    for shape in field_shapes(entity):
        known = (getattr(asked, name, None) for name in _SAME.get(shape.name, ()))
        value = next((each for each in known if each is not None), None)
        if shape.is_array and shape.struct is not None:
            found[shape.name] = [_skeleton(each, shape.struct) for each in value or ()]
        elif value is not None:
            found[shape.name] = value
        elif shape.name in _SCALARS and isinstance(asked, str | int):
            found[shape.name] = asked
        elif shape.name in _NONE:
            found[shape.name] = -1
    return found


def faulty_reply(fault: Fault, reply: Reply, timer: Timer) -> Reply:
    """Wrap a reply function so that the fault delays, drops or changes what it sends."""

    def give(parts: Sequence[Part], close: str | None = None) -> None:
        spoiled = [] if fault.drop else _spoil(fault, parts)
        if fault.cut_at is not None:
            close = close or "a fault was requested"
        if fault.delay > 0:
            timer.after(fault.delay, lambda: reply(spoiled, close))
        else:
            reply(spoiled, close)

    return give


def _spoil(fault: Fault, parts: Sequence[Part]) -> list[Part]:
    if fault.cut_at is None and fault.corrupt_at is None:
        return list(parts)
    data = bytearray(in_memory(parts))
    if fault.corrupt_at is not None and data:
        data[fault.corrupt_at % len(data)] ^= 0x40
    return [bytes(data[: fault.cut_at])]


BEFORE_AUTHENTICATION: Final[frozenset[ApiKey]] = frozenset(
    {ApiKey.API_VERSIONS, ApiKey.SASL_HANDSHAKE, ApiKey.SASL_AUTHENTICATE}
)
"""The requests that are allowed before a login."""

MOST_ELEMENTS: Final = 100_000
"""Limit of the number of array elements in one request, to limit its memory."""
_HEADER_START: Final = struct.Struct(">hhi")
_complaints: Final = QuietLog(logging.getLogger(__name__), SystemClock())


class Dispatcher:
    """Passes each request to the handler of its API (Kafka: KafkaApis). Thread-safe.

    ``handlers`` may be any mapping, for example one that wraps the real handlers.
    """

    def __init__(self, node: Node, handlers: Mapping[ApiKey, Handler]) -> None:
        self._node = node
        self._handlers = handlers
        self._faults = node.options.faults

    def dispatch(self, frame: BytesLike, session: Session, reply: Reply) -> None:
        """Answer the request in ``frame``, now or later.

        Raises ``HangUp``, which closes the connection, in these cases:

        - The bytes are not a request.
        - The broker does not accept the API or its version. (ApiVersions is answered in any
          version.)
        - The client has not logged in, or its login has expired.
        - A handler raises ``HangUp``.
        """
        key, version, correlation_id = _start(frame)
        header = {"correlation_id": correlation_id}
        if key not in BEFORE_AUTHENTICATION:
            if not session.authenticated:
                raise HangUp(f"{key.name} before authentication")
            if self._node.options.clock.monotonic() >= session.expires:
                raise HangUp(f"{key.name} after the login had expired")
        if not self._faults.versions.get(key, VERSIONS[key]).accepts(version):
            if key is not ApiKey.API_VERSIONS:
                raise HangUp(f"{key.name} version {version} is not supported")
            reply(response_schema(key, 0).encode_parts(header, unknown_version()))
            return
        call = _parse(key, version, frame, session)
        handler = _refusing(self._handlers[key])
        fault = self._faults.take(key, call.body, call.client_id, self._node.node_id, self._name_of)
        if fault is not None:
            handler = faulty_handler(fault, key, handler)
            reply = faulty_reply(fault, reply, self._node.timer)
        answer = handler(call, self._node)
        if answer is None:
            reply(())
        elif isinstance(answer, Later):
            answer.begin(lambda values: _send_late(reply, key, version, header, values))
        else:
            reply(response_schema(key, version).encode_parts(header, answer))

    def _name_of(self, topic_id: uuid.UUID) -> str | None:
        topic = self._node.topics.find_id(topic_id)
        return None if topic is None else topic.name


def _refusing(handler: Handler) -> Handler:
    """Wrap a handler so that a ``BrokerError`` becomes the error code of the whole answer."""

    def answer(call: Call, node: Node) -> Message | Later | None:
        try:
            return handler(call, node)
        except BrokerError as error:
            return {"error_code": error.code}

    return answer


def _send_late(
    reply: Reply, key: ApiKey, version: int, header: Message, values: Message | Exception
) -> None:
    try:
        if isinstance(values, Exception):
            raise values
        parts = response_schema(key, version).encode_parts(header, values)
    except Exception:
        reply((), "the broker met an unexpected error")
        _complaints.exception("no response for %s could be made", key.name)
        return
    reply(parts)


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
