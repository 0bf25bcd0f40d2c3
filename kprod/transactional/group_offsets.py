"""The offsets and the consumer group of ``send_offsets_to_transaction``, in all accepted forms."""

from __future__ import annotations

import operator
import struct
from collections.abc import Iterable, Mapping
from typing import Any, TypeAlias

from kprod.errors import InvalidRecordError, PartitionError, RecordTypeError
from kprod.intake.arguments import check_topic
from kprod.types import TopicPartition
from kprod.wire.transactions import GroupMetadata, OffsetToCommit

__all__ = [
    "GroupMetadata",
    "Offsets",
    "checked_place",
    "group_id_of",
    "group_member",
    "offsets_to_commit",
]

MAX_INT32, MAX_INT64 = 2**31 - 1, 2**63 - 1
MAX_TEXT = 32_767
"""Maximum size in bytes of a string in a request."""


Offsets: TypeAlias = Mapping[Any, Any] | Iterable[Any]
"""Either a mapping from ``(topic, partition)`` to the offset of the record to read next, or to an
object with ``offset`` and optionally ``metadata`` and ``leader_epoch``, such as kafka-python's
OffsetAndMetadata. Or objects with ``topic``, ``partition`` and ``offset``, such as
confluent-kafka's TopicPartition."""


_CONFLUENT = b"CGMDv2:"
_GENERATION = struct.Struct("=i")


def _of_confluent(found: bytes) -> GroupMetadata:
    """Parse the result of confluent-kafka's ``Consumer.consumer_group_metadata()``.

    librdkafka makes these bytes so that its bindings can pass them from a consumer to a producer
    (``rd_kafka_consumer_group_metadata_write``). The first bytes identify the format. The following
    bytes are: the generation; the group and the member, each ended by a zero byte; a byte that is 0
    if a group instance id follows; the group instance id. Raises RecordTypeError for another
    format.
    """
    group_id, _, rest = found[len(_CONFLUENT) + _GENERATION.size :].partition(b"\0")
    member_id, ended, instance = rest.partition(b"\0")
    if not found.startswith(_CONFLUENT) or not ended or not instance:
        raise RecordTypeError(
            f"group_metadata: bytes that begin with {found[:8]!r}, where kprod knows"
            f" {_CONFLUENT!r}, of librdkafka 2: give kprod.GroupMetadata, or the id of the group"
        )
    (generation,) = _GENERATION.unpack_from(found, len(_CONFLUENT))
    instance_id = None if instance[0] else instance[1:].partition(b"\0")[0].decode()
    return GroupMetadata(group_id.decode(), generation, member_id.decode(), instance_id)


def group_member(group: object) -> GroupMetadata:
    """A group member from a group id, an object with ``group_id``, or confluent-kafka's bytes.

    Raises RecordTypeError for anything else. Raises InvalidRecordError for an empty id. Also raises
    it for text or numbers that cannot be encoded in a request, because these would crash the
    sender.
    """
    if isinstance(group, str):
        return GroupMetadata(group_id_of(group))
    if isinstance(group, bytes):
        group = _of_confluent(group)
    group_id = getattr(group, "group_id", None)
    if not isinstance(group_id, str):
        raise RecordTypeError(
            "group_metadata: expected a group id, or an object with group_id, generation_id,"
            f" member_id and group_instance_id, got {type(group).__name__}"
        )
    instance_id = getattr(group, "group_instance_id", None)
    return GroupMetadata(
        group_id_of(group_id),
        _int32("group_metadata: generation_id", getattr(group, "generation_id", -1)),
        _text("group_metadata: member_id", getattr(group, "member_id", "") or ""),
        None if instance_id is None else _text("group_metadata: group_instance_id", instance_id),
    )


def group_id_of(text: Any) -> str:
    """Check and return a group id. Raises RecordTypeError and InvalidRecordError."""
    if not text:
        raise InvalidRecordError("group_metadata: the group id is empty")
    return _text("group_metadata: the group id", text)


def offsets_to_commit(offsets: Offsets) -> tuple[OffsetToCommit, ...]:
    """Check and convert the offsets.

    Raises RecordTypeError, InvalidRecordError, InvalidTopicError and PartitionError.
    """
    if isinstance(offsets, Mapping):
        found = [_of_item(place, offset) for place, offset in offsets.items()]
    elif isinstance(offsets, str | bytes) or not isinstance(offsets, Iterable):
        raise RecordTypeError(f"offsets: expected a mapping, got {type(offsets).__name__}")
    else:
        found = [_of_item(item, item) for item in offsets]
    places = {(offset.topic, offset.partition) for offset in found}
    if len(places) != len(found):
        raise InvalidRecordError("offsets: a partition is named twice")
    return tuple(found)


def _of_item(place: Any, offset: Any) -> OffsetToCommit:
    tp = _place(place)
    if hasattr(offset, "offset"):
        number = _number(f"offsets: offset of {tp}", offset.offset)
        metadata = getattr(offset, "metadata", "")
        epoch = getattr(offset, "leader_epoch", -1)
    else:
        number, metadata, epoch = _number(f"offsets: offset of {tp}", offset), "", -1
    if not 0 <= number <= MAX_INT64:
        raise InvalidRecordError(f"offsets: {tp}: expected 0 or more, got {number}")
    if metadata is not None:
        metadata = _text(f"offsets: {tp}: metadata", metadata)
    epoch = -1 if epoch is None else _int32(f"offsets: {tp}: leader_epoch", epoch)
    return OffsetToCommit(tp.topic, tp.partition, number, epoch, metadata)


def _place(place: Any) -> TopicPartition:
    if isinstance(place, tuple) and len(place) >= 2:
        topic, partition = place[0], place[1]
    else:
        topic, partition = getattr(place, "topic", None), getattr(place, "partition", None)
    if not isinstance(topic, str) or partition is None:
        raise RecordTypeError(f"offsets: expected a topic and a partition, got {place!r}")
    return checked_place(topic, partition)


def checked_place(topic: Any, partition: Any) -> TopicPartition:
    """Check a topic and a partition number, and return them as a TopicPartition.

    Raises RecordTypeError, InvalidTopicError and PartitionError.
    """
    name, number = check_topic(topic), _number("offsets: partition", partition)
    if not 0 <= number <= MAX_INT32:
        raise PartitionError(f"offsets: topic {name!r} cannot have a partition {number}")
    return TopicPartition(name, number)


def _number(what: str, value: Any) -> int:
    try:
        return operator.index(value)
    except TypeError:
        raise RecordTypeError(f"{what} must be a number, not {value!r}") from None


def _int32(what: str, value: Any) -> int:
    number = _number(what, value)
    if not -1 <= number <= MAX_INT32:
        raise InvalidRecordError(f"{what}: expected -1 to {MAX_INT32}, got {number}")
    return number


def _text(what: str, text: Any) -> str:
    if not isinstance(text, str):
        raise RecordTypeError(f"{what} must be text, not {text!r}")
    plain = str.__str__(text)
    try:
        size = len(plain.encode())
    except UnicodeEncodeError as error:
        raise InvalidRecordError(f"{what} cannot be encoded as UTF-8: {error.reason}") from None
    if size > MAX_TEXT:
        raise InvalidRecordError(f"{what} has {size} bytes, more than {MAX_TEXT}")
    return plain
