"""Frames and headers of messages.

Source: the Kafka protocol guide, "Request and Response Headers"; KIP-482 for header versions.
"""

from __future__ import annotations

import struct

from kprod.errors import ProtocolError
from kprod.wire.primitives import WireReader, WireWriter
from kprod.wire.versions import ApiKey, is_flexible

_SIZE = struct.Struct(">i")
_PREFIX = _SIZE.size
_REQUEST_HEADER = struct.Struct(">hhih")
_LONGEST_STRING = 32_767
_SMALLEST_FRAME = 4  # a correlation id
_SMALLEST_WHOLE = _PREFIX + _SMALLEST_FRAME
_NO_TAGS_AT = 4


class FrameReader:
    """Splits a byte stream into frames. Not thread-safe.

    ``feed`` takes time linear in the bytes fed, with chunks of any size. Between two calls, the
    reader holds at most twice the memory of the received bytes, whatever size the frame announces.
    """

    __slots__ = ("_filled", "_max_frame_bytes", "_room")

    def __init__(self, max_frame_bytes: int = 100_000_000) -> None:
        self._max_frame_bytes = max_frame_bytes
        self._room = memoryview(b"")  # starts with the incomplete frame, including its size prefix
        self._filled = 0  # bytes of the incomplete frame that have arrived

    def allow(self, max_frame_bytes: int) -> None:
        """Accept frames up to this size from now on."""
        self._max_frame_bytes = max_frame_bytes

    def feed(self, chunk: bytes) -> list[memoryview]:
        """The frames that ``chunk`` completes, in order, without their size prefix.

        Frames are read-only views; those within one chunk share its memory. Raises ProtocolError
        for a size below 4 or above the limit, with a hint if the bytes look like another protocol.
        The stream is unusable then, and the frames of that chunk are lost.
        """
        size: int
        end = len(chunk)
        if not self._filled and end >= _SMALLEST_WHOLE:
            size = _SIZE.unpack_from(chunk)[0]
            if size == end - _PREFIX and size <= self._max_frame_bytes:  # as nearly always
                return [memoryview(chunk)[_PREFIX:]]
        view = memoryview(chunk)
        frames: list[memoryview] = []
        at = self._finish_partial(view, frames) if self._filled else 0
        while (begin := at + _PREFIX) <= end:
            size = _SIZE.unpack_from(chunk, at)[0]
            if not _SMALLEST_FRAME <= size <= self._max_frame_bytes:
                raise self._no_frame(view, at, size)
            if begin + size > end:
                break
            at = begin + size
            frames.append(view[begin:at])
        if at < end:
            self._room, self._filled = memoryview(bytearray(view[at:])), end - at
        return frames

    def _finish_partial(self, view: memoryview, frames: list[memoryview]) -> int:
        """Add bytes of ``view`` to the incomplete frame; return how many were used."""
        at = self._take(view, _SIZE.size) if self._filled < _SIZE.size else 0
        if self._filled < _SIZE.size:
            return at
        size: int = _SIZE.unpack_from(self._room, 0)[0]
        if not _SMALLEST_FRAME <= size <= self._max_frame_bytes:
            raise self._no_frame(self._room, 0, size)
        whole = _SIZE.size + size
        at += self._take(view[at:], whole)
        if self._filled == whole:
            frames.append(self._room.toreadonly()[_SIZE.size :])
            self._room, self._filled = memoryview(b""), 0
        return at

    def _take(self, view: memoryview, whole: int) -> int:
        """Add bytes until the incomplete frame has ``whole`` of them; return how many were used."""
        before, taken = self._filled, min(len(view), whole - self._filled)
        filled = before + taken
        if filled > len(self._room):
            # Twice as much, not an eighth more as a bytearray that grows by itself: an allocator
            # that keeps what was freed for a while would hold eight times the frame.
            room = memoryview(bytearray(min(whole, max(filled, 2 * len(self._room)))))
            room[:before] = self._room[:before]
            self._room = room
        self._room[before:filled] = view[:taken]
        self._filled = filled
        return taken

    def _no_frame(self, view: memoryview, at: int, size: int) -> ProtocolError:
        return ProtocolError(
            f"a frame of {size} bytes, {_SMALLEST_FRAME} to {self._max_frame_bytes} are allowed: "
            f"{_hint(bytes(view[at : at + _SIZE.size]))}"
        )


def _hint(prefix: bytes) -> str:
    """A guess of the peer's protocol from the first four bytes of the frame."""
    if prefix == b"HTTP":
        return "this is an HTTP server, not a Kafka broker"
    if prefix == b"SSH-":
        return "this is an SSH server, not a Kafka broker"
    if prefix[0] in b"\x14\x15\x16\x17" and prefix[1] == 3:  # a TLS record and its major version
        return "this port expects TLS; set security_protocol to match"
    return "is this a Kafka broker? if it is: receive_message_max_bytes is the limit"


def encode_request_header(api: ApiKey, version: int, correlation_id: int, client_id: str) -> bytes:
    """Header version 1, or 2 for a flexible version; without the frame's size prefix."""
    # The client id keeps the classic encoding in header 2, so that a broker can read the header
    # of a version it does not know.
    name = client_id.encode()
    if len(name) > _LONGEST_STRING:
        raise ValueError(f"a client id of {len(name)} bytes; at most {_LONGEST_STRING} fit")
    header = _REQUEST_HEADER.pack(api, version, correlation_id, len(name)) + name
    return header + b"\x00" if is_flexible(api, version) else header


def split_response_header(api: ApiKey, version: int, frame: memoryview) -> tuple[int, memoryview]:
    """The correlation id and the body of a response to that request. Raises ProtocolError.

    ApiVersions responses have the header without tags in every version: the client may not know
    the broker's versions yet.
    """
    flexible = is_flexible(api, version) and api is not ApiKey.API_VERSIONS
    if flexible and len(frame) > _NO_TAGS_AT and not frame[_NO_TAGS_AT]:  # as nearly every one is
        return _SIZE.unpack_from(frame)[0], frame[_NO_TAGS_AT + 1 :]
    reader = WireReader(frame, f"{api.name} v{version} response header", flexible=flexible)
    correlation_id = reader.int32()
    reader.skip_tags()
    return correlation_id, reader.rest()


def begin_request(api: ApiKey, version: int, correlation_id: int, client_id: str) -> WireWriter:
    """A message that begins with its header; ``framed`` ends it."""
    out = WireWriter(flexible=is_flexible(api, version))
    out.raw(encode_request_header(api, version, correlation_id, client_id))
    return out


def framed(out: WireWriter) -> bytes:
    """The complete message with its size prefix."""
    out.no_tags()
    message = out.take()
    return _SIZE.pack(len(message)) + message
