"""Kafka's messages as bytes, by way of kio's schemas.

Every version of a message is a type of its own. Whoever sends one gives a plain mapping of all
the fields it knows, in kio's spelling, times as integers in milliseconds; ``Schema`` keeps those
that the version has, and fills in zero, null or empty for the ones that are not given.
"""

from __future__ import annotations

import struct
import threading
from collections.abc import Mapping
from functools import cache
from typing import Any, Final

from kio.index import load_request_schema, load_response_schema

from kprod.broker.file_slice import FileSlice
from kprod.broker.message_reader import Allowance, message_reader
from kprod.broker.message_writer import Frame, message_writer
from kprod.errors import ProtocolError
from kprod.types import BytesLike

Message = Mapping[str, Any]
_loading: Final = threading.Lock()
"""Schemas are modules that import each other, and are imported when they are first needed: two
threads at it could wait for each other, which Python ends by an error."""


class Schema:
    """One message type at one version, with its header. Immutable, for any thread."""

    def __init__(self, entity: Any) -> None:
        self._read = message_reader(entity)
        self._write = message_writer(entity)
        self._read_header = message_reader(entity.__header_schema__)
        self._write_header = message_writer(entity.__header_schema__)

    def encode(self, header: Message, values: Message) -> bytes:
        """The whole frame: size, header, body."""
        return b"".join(
            part.read() if isinstance(part, FileSlice) else part
            for part in self.encode_parts(header, values)
        )

    def encode_parts(self, header: Message, values: Message) -> list[BytesLike | FileSlice]:
        """The whole frame in pieces: what is given as a slice of a file stays one."""
        frame = Frame()
        self._write_header(header, frame)
        self._write(values, frame)
        return frame.parts()

    def decode(self, frame: BytesLike, most_elements: int | None = None) -> tuple[Any, Any]:
        """Header and body of a frame without its size, as kio's types.

        Records are views of ``frame``; times other than durations are integers. Bytes behind the
        body are ignored. ``most_elements`` is how many its arrays may have together; None for as
        many as there are bytes. Raises ``ProtocolError``.
        """
        data = memoryview(frame)
        allowance = Allowance(len(data) if most_elements is None else most_elements)
        try:
            header, at = self._read_header(data, 0, allowance)
            body, _ = self._read(data, at, allowance)
        except (struct.error, IndexError):
            raise ProtocolError(f"the message ends early, after {len(frame)} bytes") from None
        return header, body


@cache
def request_schema(api_key: int, version: int) -> Schema:
    """The schema of a request; kio's ``UnknownEntity`` when there is none."""
    with _loading:
        return Schema(load_request_schema(api_key, version))


@cache
def response_schema(api_key: int, version: int) -> Schema:
    """The schema of a response."""
    with _loading:
        return Schema(load_response_schema(api_key, version))
