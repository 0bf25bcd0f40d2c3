"""Produce: the request that carries the records, and its response.

Requests are framed around views of the batches, which are not copied. Source: ProduceRequest.json
and ProduceResponse.json of Apache Kafka 4.2; KIP-951 for leader hints, KIP-516 for topic ids.
"""

from __future__ import annotations

import struct
from functools import lru_cache
from typing import TypeAlias

from kprod.errors import ProtocolError
from kprod.types import Broker
from kprod.wire.framing import encode_request_header
from kprod.wire.primitives import UNLIMITED, WireWriter
from kprod.wire.versions import ApiKey, is_flexible
from kprod_ext.produce import PartitionResponse, frame_produce, read_produce_response

MOST_UNASKED = 10
"""Limit of unrequested partitions in a response; brokers should name none."""

_FRAME_SIZE = struct.Struct(">i")
_ACKS_AND_TIMEOUT = struct.Struct(">hi")


Topics: TypeAlias = dict[str | bytes, list[tuple[int, list[memoryview]]]]
"""(Partition, pieces of its batch), by the topic's name, or from version 13 on by its id."""


def encode_produce_request(
    version: int,
    correlation_id: int,
    client_id: str,
    acks: int,
    timeout_ms: int,
    topics: Topics,
    transactional_id: str | None = None,
) -> list[bytes | memoryview]:
    """A whole frame, including the size prefix, as pieces to be sent in order.

    The pieces include the batches without a copy: their memory must not change until the request
    has ended. Raises TypeError for a topic given by name where the version needs an id, or vice
    versa.
    """
    head = _head(version, client_id, acks, timeout_ms, transactional_id)
    return frame_produce(head, version, correlation_id, topics)


@lru_cache(maxsize=64)
def _head(
    version: int, client_id: str, acks: int, timeout_ms: int, transactional_id: str | None
) -> bytes:
    """Everything before the topics, with zeros for the frame's size and the correlation id."""
    out = WireWriter(flexible=is_flexible(ApiKey.PRODUCE, version))
    out.pack(_FRAME_SIZE, 0)
    out.raw(encode_request_header(ApiKey.PRODUCE, version, 0, client_id))
    out.nullable_string(transactional_id)
    out.pack(_ACKS_AND_TIMEOUT, acks, timeout_ms)
    return out.take()


def decode_produce_response(
    version: int, body: memoryview, partitions: int = UNLIMITED, records: int = UNLIMITED
) -> tuple[list[PartitionResponse], int, list[Broker]]:
    """Read the body of a response of version 3 to 13. Raises ProtocolError, and nothing else.

    Returns the results of all partitions in the broker's order, ``throttle_time_ms``, and brokers
    that the answer names as leaders.

    ``partitions`` and ``records`` are those of the request: a response with more records, or with
    far more partitions, is refused. Unknown tagged fields and bytes after the body are ignored, as
    in Kafka's own clients.
    """
    most = partitions + MOST_UNASKED
    try:
        results, throttle_ms, endpoints = read_produce_response(version, body, most, records)
    except ValueError as error:
        raise ProtocolError(f"PRODUCE v{version} response: {error}") from None
    brokers = [Broker(*endpoint) for endpoint in endpoints] if endpoints else []
    return results, throttle_ms, brokers
