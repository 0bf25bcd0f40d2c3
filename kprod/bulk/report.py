"""What became of the records of one bulk call, in counts and offsets."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from kprod.errors import DeliveryError
from kprod.types import TopicPartition


@dataclass(frozen=True, slots=True)
class OffsetRange:
    """The offsets that records of one bulk call have in one partition, both ends included.

    Records of other writers may lie between them. Both are -1 when the broker told no offsets
    (``acks=0``). ``records`` counts those of the call.
    """

    first: int
    last: int
    records: int


@dataclass(frozen=True, slots=True)
class BulkReport:
    """All ``records`` of a bulk call were acknowledged; ``offsets`` are where, by partition."""

    records: int
    offsets: Mapping[TopicPartition, OffsetRange]


@dataclass(frozen=True, slots=True)
class BulkProgress:
    """What was known of the records of one bulk call at one moment, in counts of them.

    ``failure`` is what ``BulkDelivery.get`` raises for those that have failed, None while none has;
    ``waits_for`` where the first of those is sent that have no outcome yet.
    """

    acknowledged: int
    failed: int
    pending: int
    failure: DeliveryError | None
    waits_for: TopicPartition | None
