"""From the bytes of a request to the bytes of its response, or to the fault asked for."""

from __future__ import annotations

import logging
import struct
from collections.abc import Callable, Mapping, Sequence
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
from kprod.broker.records.file_slice import FileSlice
from kprod.clock import SystemClock
from kprod.errors import BrokerError, ProtocolError
from kprod.types import BytesLike

_CODES: Final = ("error_code", "partition_error_code")
_TOP: Final = frozenset({ApiKey.METADATA})
"""Answers whose topics have the error that matters, not the partitions."""


def faulty_handler(fault: Fault, key: ApiKey, handler: Handler) -> Handler:
    """The handler with the fault's error code, and throttling, in its answer."""

    def answer(call: Call, node: Node) -> Message | Later | None:
        entity = load_response_schema(key, call.version)
        if fault.error is not None and not fault.after_append:
            if key is ApiKey.PRODUCE and call.body.acks == 0:
                return None
            return change(_skeleton(call.body), entity)
        found = handler(call, node)
        if isinstance(found, Later):
            begin = found.begin
            return Later(lambda give: begin(lambda values: give(change_late(values, entity))))
        return found if found is None else change(found, entity)

    def change_late(values: Message | Exception, entity: Any) -> Message | Exception:
        return values if isinstance(values, Exception) else change(values, entity)

    def change(values: Message, entity: Any) -> Message:
        changed = values
        if fault.error is not None:
            changed = _with_error(values, entity, fault.error, top=key in _TOP)
        if fault.throttle_ms is not None:
            changed = {**changed, "throttle_time": fault.throttle_ms}
        return changed

    return answer


def _with_error(values: Message, entity: Any, code: int, *, top: bool) -> Message:
    """The answer with the code wherever the deepest structs have one."""
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


def _skeleton(body: Any) -> Message:
    """An answer about the topics and partitions of a request, with nothing in it yet."""
    topics: list[dict[str, Any]] = []
    for topic in _topics(body):
        if isinstance(topic, str):
            topics.append({"name": topic})
            continue
        indexes = [_index(part) for part in _parts(topic)]
        entries = [{"index": i, "partition_index": i, "partition": i} for i in indexes]
        name = getattr(topic, "name", None) or getattr(topic, "topic", None)
        topics.append(
            {
                "name": name or "",
                "topic": name or "",
                "topic_id": getattr(topic, "topic_id", None),
                "partitions": entries,
                "partition_responses": entries,
                "results_by_partition": entries,
            }
        )
    groups = [
        {"group_id": getattr(group, "group_id", group)} for group in getattr(body, "groups", ())
    ]
    keys = getattr(body, "coordinator_keys", ())
    coordinators = [{"key": key, "node_id": -1, "port": -1} for key in keys]
    names = getattr(body, "transactional_ids", ())
    transactions = [
        {"transactional_id": name, "producer_id": 0, "producer_epoch": 0} for name in names
    ]
    fields = {"generation_id": -1, "producer_id": -1, "producer_epoch": -1, "node_id": -1}
    return {
        **fields,
        "topics": topics,
        "responses": topics,
        "coordinators": coordinators,
        "groups": groups,
        "results_by_topic_v3_and_below": topics,
        "transaction_states": transactions,
    }


def _topics(body: Any) -> Sequence[Any]:
    """The topics of a request, under whichever name the list has."""
    for name in ("topics", "topic_data", "v3_and_below_topics"):
        found: Sequence[Any] | None = getattr(body, name, None)
        if found:
            return found
    return ()


def _parts(topic: Any) -> Sequence[Any]:
    """The partitions of a topic in a request, under whichever name the list has."""
    for name in ("partitions", "partition_data", "partition_indexes"):
        found: Sequence[Any] | None = getattr(topic, name, None)
        if found:
            return found
    return ()


def _index(part: Any) -> int:
    for name in ("index", "partition_index", "partition"):
        found = getattr(part, name, None)
        if isinstance(found, int):
            return found
    return int(part)


class FaultyReply:
    """Gives a ``Reply`` what a fault leaves of an answer."""

    def __init__(self, fault: Fault, reply: Reply, timer: Timer) -> None:
        self._fault = fault
        self._reply = reply
        self._timer = timer

    def send(self, parts: Sequence[Part], *, close: bool = False) -> None:
        """See ``Reply``."""
        fault = self._fault
        spoiled = _spoil(fault, parts)
        close = close or fault.cut_at is not None
        if fault.drop:
            spoiled = []
        self._later(lambda: self._reply.send(spoiled, close=close))

    def hang_up(self, reason: str) -> None:
        """See ``Reply``."""
        self._later(lambda: self._reply.hang_up(reason))

    def _later(self, act: Callable[[], None]) -> None:
        if self._fault.delay > 0:
            self._timer.after(self._fault.delay, act)
        else:
            act()


def _spoil(fault: Fault, parts: Sequence[Part]) -> list[Part]:
    if fault.cut_at is None and fault.corrupt_at is None:
        return list(parts)
    data = bytearray()
    for part in parts:
        data += part.read() if isinstance(part, FileSlice) else part
    if fault.corrupt_at is not None and data:
        data[fault.corrupt_at % len(data)] ^= 0x40
    return [bytes(data[: fault.cut_at])]


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
        handler = _refusing(self._handlers[key])
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


def _refusing(handler: Handler) -> Handler:
    """The handler, whose ``BrokerError`` becomes the error code of the whole answer."""

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
