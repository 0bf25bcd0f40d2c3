"""Text from brokers is made safe for logs and terminals."""

from __future__ import annotations

import struct

import pytest

from kprod.errors import ProtocolError
from kprod.types import Broker
from kprod.wire.control import decode_metadata_response
from kprod.wire.primitives import WireReader
from kprod.wire.produce import decode_produce_response
from kprod_ext.peer_text import LONGEST, decoded, printable

HOSTILE = {
    "a forged log line": "host\n2026-01-01 CRITICAL root: all is lost",
    "escape codes": "\x1b]0;title\x07\x1b[2J",
    "right-to-left override": "txt.\u202eexe",
    "a lone surrogate's escape": "\ud7ff\ufffe",
    "unusual whitespace": "a\u00a0b\u2028c\x85d",
    "very long": "h" * 800_000,
    "everything together": "\x1b\U0001f3f4" * 100_000,
}


@pytest.mark.parametrize("text", HOSTILE.values(), ids=HOSTILE)
def test_hostile_text_becomes_one_printable_line_of_limited_length(text: str) -> None:
    for shown in (printable(text), decoded(text.encode())):
        assert shown.isprintable()
        assert len(shown) <= LONGEST + 3


@pytest.mark.parametrize(
    "text", ["", "broker-1.example.org", "T" * 249, "h" * LONGEST, "bücher.de"]
)
def test_ordinary_names_are_unchanged(text: str) -> None:
    assert printable(text) == decoded(text.encode()) == text


def test_truncation_is_marked() -> None:
    assert printable("x" * (LONGEST + 1)) == "x" * LONGEST + "..."
    assert printable("\n" * LONGEST) == "\\n" * (LONGEST // 2) + "..."
    assert decoded(b"\xff" * 5000) == "\ufffd" * LONGEST + "..."
    with pytest.raises(UnicodeDecodeError):
        decoded(b"\xff")


def classic(text: bytes) -> bytes:
    return struct.pack(">h", len(text)) + text


@pytest.mark.parametrize("text", HOSTILE.values(), ids=HOSTILE)
def test_broker_hosts_and_produce_error_messages_are_printable(text: str) -> None:
    host = text.encode()[:30_000].decode(errors="ignore").encode()
    brokers = struct.pack(">ii", 1, 7) + classic(host) + struct.pack(">ih", 9092, -1)
    body = struct.pack(">i", 0) + brokers + struct.pack(">hii", -1, 7, 0)
    (found,) = decode_metadata_response(4, memoryview(body)).brokers
    assert str(Broker(*found)).isprintable()
    assert len(str(Broker(*found))) < 1100

    errors = struct.pack(">ii", 1, 0) + classic(host)
    result = struct.pack(">ihqqq", 0, 87, -1, -1, -1) + errors + classic(host)
    body = struct.pack(">i", 1) + classic(b"topic") + struct.pack(">i", 1) + result + bytes(4)
    ((part,), _, _) = decode_produce_response(8, memoryview(body))
    ((_, message),) = part.record_errors
    for shown in (message, part.error_message):
        assert shown is not None
        assert shown.isprintable()
        assert len(shown) <= LONGEST + 3


def test_invalid_utf8_is_refused() -> None:
    with pytest.raises(ProtocolError, match="not UTF-8"):
        WireReader(memoryview(classic(b"\xff")), "it", flexible=False).string()
    body = struct.pack(">i", 1) + classic(b"\xff") + bytes(40)
    with pytest.raises(ProtocolError, match="not UTF-8"):
        decode_produce_response(8, memoryview(body))
