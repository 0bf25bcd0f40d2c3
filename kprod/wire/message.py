"""A whole request as bytes: size, header, and the body that its API writes in between."""

from __future__ import annotations

import struct

from kprod.wire.framing import encode_request_header
from kprod.wire.versions import ApiKey, is_flexible
from kprod.wire.writer import WireWriter

_FRAME_SIZE = struct.Struct(">i")


def begin_request(api: ApiKey, version: int, correlation_id: int, client_id: str) -> WireWriter:
    """A message that begins with its header; ``framed`` ends it."""
    out = WireWriter(flexible=is_flexible(api, version))
    out.raw(encode_request_header(api, version, correlation_id, client_id))
    return out


def framed(out: WireWriter) -> bytes:
    """The finished message behind its size."""
    out.no_tags()
    message = out.take()
    return _FRAME_SIZE.pack(len(message)) + message
