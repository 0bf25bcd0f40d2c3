"""Produce requests, framed around batches without copying them, and their responses."""

from typing import final

from typing_extensions import Buffer

def frame_produce(
    head: bytes,
    version: int,
    correlation_id: int,
    topics: dict[str | bytes, list[tuple[int, list[memoryview]]]],
) -> list[bytes | memoryview]:
    """The pieces of a Produce request: ``head``, then the topics.

    ``topics`` maps each topic's name, or from version 13 on its id, to (partition, pieces of its
    batch).
    """

_Endpoint = tuple[int, str, int, str | None]

@final
class PartitionResponse:
    """The broker's result for one batch.

    ``topic`` is None from version 13 on, ``topic_id`` before that. ``base_offset`` is -1 on errors,
    ``log_append_time_ms`` (milliseconds since the epoch) is -1 unless the broker set it,
    ``log_start_offset`` is -1 if unknown. ``record_errors`` contains pairs of an index in the batch
    and a message. ``leader_id`` and ``leader_epoch`` are the broker's hint, or -1.
    """

    __hash__: None  # type: ignore[assignment]

    def __init__(
        self,
        topic: str | None,
        topic_id: bytes | None,
        partition: int,
        error_code: int,
        base_offset: int,
        log_append_time_ms: int,
        log_start_offset: int,
        record_errors: list[tuple[int, str | None]],
        error_message: str | None,
        leader_id: int,
        leader_epoch: int,
    ) -> None: ...
    @property
    def topic(self) -> str | None: ...
    @property
    def topic_id(self) -> bytes | None: ...
    @property
    def partition(self) -> int: ...
    @property
    def error_code(self) -> int: ...
    @property
    def base_offset(self) -> int: ...
    @property
    def log_append_time_ms(self) -> int: ...
    @property
    def log_start_offset(self) -> int: ...
    @property
    def record_errors(self) -> list[tuple[int, str | None]]: ...
    @property
    def error_message(self) -> str | None: ...
    @property
    def leader_id(self) -> int: ...
    @property
    def leader_epoch(self) -> int: ...

def read_produce_response(
    version: int, body: Buffer, most_results: int, most_errors: int
) -> tuple[list[PartitionResponse], int, list[_Endpoint]]:
    """Results, throttle time in ms, and leaders' endpoints in a response of version 3 to 13.

    An endpoint is node id, host, port, rack. Raises ValueError for malformed bytes, for more than
    ``most_results`` partitions or leaders, and for more than ``most_errors`` record errors.
    """
