"""Answers with a fault in them: another error code, late, cut off, corrupt, or none at all."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

from kio.index import load_response_schema

from kprod.broker.api_key import ApiKey
from kprod.broker.call import Call, Handler, Later
from kprod.broker.faults import Fault
from kprod.broker.file_slice import FileSlice
from kprod.broker.message_shape import field_shapes
from kprod.broker.messages import Message
from kprod.broker.node import Node
from kprod.broker.reply import Reply
from kprod.broker.stream import Part
from kprod.broker.timer import Timer

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
