"""A fault in one request."""

from __future__ import annotations

from dataclasses import dataclass

PRODUCE, METADATA, HANDSHAKE, IDENTITY = "PRODUCE", "METADATA", "API_VERSIONS", "INIT_PRODUCER_ID"
FIND, END = "FIND_COORDINATOR", "END_TXN"
ADD_PARTITIONS, ADD_OFFSETS = "ADD_PARTITIONS_TO_TXN", "ADD_OFFSETS_TO_TXN"
COMMIT_OFFSETS = "TXN_OFFSET_COMMIT"

HONEST = (
    "cut-request",  # the connection breaks at ``part`` of the request; 1.0: before it is read
    "cut-response",  # ... at ``part`` of the response
    "error-before",  # answered with ``code``, not carried out
    "error-after",  # carried out, answered with ``code``
    "lose-response",  # the connection goes silent after the request was carried out
    "stall",  # the request is carried out ``seconds`` later
    "delay",  # the request is carried out, the response comes ``seconds`` later
    "throttle",  # the response asks for ``seconds`` of silence
)
DISHONEST = (
    "amnesia",  # no response; after the connection the broker is as if restarted
    "swallow",  # no response to this request
    "duplicate",  # the response comes twice
    "swap",  # the response comes after that of the next request
    "wrong-id",  # the response has another correlation id
    "leave-out",  # the response lacks one partition
    "extra",  # the response has a partition that was not requested
    "garbage",  # half of the response's body
)
MUTATE = "mutate"  # with probability ``part`` the response's bytes are mutated


@dataclass(frozen=True, slots=True)
class Interference:
    """``api`` is the name of an ``ApiKey``, ``how`` one of those above; ``partition`` None: all."""

    api: str
    how: str
    code: int = 0
    part: float = 0.5
    seconds: float = 0.0
    partition: int | None = None
