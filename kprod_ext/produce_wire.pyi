from collections.abc import Sequence

from typing_extensions import Buffer

_Result = tuple[
    str | None,
    bytes | None,
    int,
    int,
    int,
    int,
    int,
    list[tuple[int, str | None]],
    str | None,
    int,
    int,
]
_Endpoint = tuple[int, str, int, str | None]
_Batch = tuple[object, object, int, memoryview]

def frame_produce(
    head: bytes,
    version: int,
    correlation_id: int,
    topics: Sequence[tuple[bytes, Sequence[_Batch]]],
) -> list[bytes | memoryview]:
    """The pieces of a Produce request: ``head``, then the topics, each its encoded name or id and
    its batches, which have their partition at 2 and their records at 3.
    """

def read_produce_response(version: int, body: Buffer) -> tuple[list[_Result], int, list[_Endpoint]]:
    """Results, throttle time in ms, and leaders' endpoints of a response of version 3 to 13.

    A result: topic, topic id (16 bytes), partition, error code, base offset, append time, log start
    offset, errors by record, message, leader id, leader epoch. An endpoint: node id, host, port,
    rack. Raises ValueError when the bytes do not fit.
    """
