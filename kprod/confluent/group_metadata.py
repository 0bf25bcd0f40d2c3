"""A consumer's group metadata as confluent-kafka has them: bytes, which librdkafka has made.

librdkafka gives them to the bindings to carry from a consumer to a producer, and says in the first
bytes how the rest is laid out. ``rd_kafka_consumer_group_metadata_write`` has the layout: the
generation, the group and the member, each text ended by a zero, then whether there is no group
instance id, and that.
"""

from __future__ import annotations

import struct
from typing import Any

from kprod.errors import RecordTypeError
from kprod.transactional.group_offsets import GroupMetadata

_VERSION_2 = b"CGMDv2:"
_GENERATION = struct.Struct("=i")


def group_metadata(found: Any) -> Any:
    """``GroupMetadata`` of what ``Consumer.consumer_group_metadata()`` returns; others as they are.

    Raises RecordTypeError for bytes of a librdkafka whose layout is another one.
    """
    if not isinstance(found, bytes):
        return found
    group_id, _, rest = found[len(_VERSION_2) + _GENERATION.size :].partition(b"\0")
    member_id, ended, instance = rest.partition(b"\0")
    if not found.startswith(_VERSION_2) or not ended or not instance:
        raise RecordTypeError(
            f"group_metadata: bytes that begin with {found[:8]!r}, where kprod knows"
            f" {_VERSION_2!r}, of librdkafka 2: give kprod.GroupMetadata, or the id of the group"
        )
    (generation,) = _GENERATION.unpack_from(found, len(_VERSION_2))
    instance_id = None if instance[0] else instance[1:].partition(b"\0")[0].decode()
    return GroupMetadata(group_id.decode(), generation, member_id.decode(), instance_id)
