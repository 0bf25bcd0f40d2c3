"""SaslHandshake and SaslAuthenticate: the requests of a login.

Source: the message schemas of Apache Kafka 4.2; KIP-152 (error codes), KIP-368 (lifetimes).
"""

from __future__ import annotations

import struct
from typing import NamedTuple

from kprod.wire.framing import begin_request, framed
from kprod.wire.primitives import WireReader
from kprod.wire.versions import ApiKey, is_flexible

_INT64 = struct.Struct(">q")
_SMALLEST_NAME = 2


class SaslHandshakeReply(NamedTuple):
    """``mechanisms`` are those that the broker offers. They are used only in errors."""

    error_code: int
    mechanisms: list[str]

    @property
    def throttle_ms(self) -> int:
        """Always 0, because brokers do not throttle logins."""
        return 0


class SaslAuthenticateReply(NamedTuple):
    """``lifetime_ms`` is how long the login is valid; 0 means without limit."""

    error_code: int
    error_message: str | None
    auth_bytes: bytes
    lifetime_ms: int

    @property
    def throttle_ms(self) -> int:
        """Always 0, because brokers do not throttle logins."""
        return 0


def encode_sasl_handshake_request(
    version: int, correlation_id: int, client_id: str, mechanism: str
) -> bytes:
    """A whole frame of version 1."""
    out = begin_request(ApiKey.SASL_HANDSHAKE, version, correlation_id, client_id)
    out.string(mechanism)
    return framed(out)


def decode_sasl_handshake_response(version: int, body: memoryview) -> SaslHandshakeReply:
    """Read the answer. Raises ProtocolError, and nothing else."""
    reader = WireReader(body, f"SASL_HANDSHAKE v{version} response", flexible=False)
    error_code = reader.int16()
    names = [reader.string() for _ in range(reader.array(_SMALLEST_NAME))]
    return SaslHandshakeReply(error_code, names)


def encode_sasl_authenticate_request(
    version: int, correlation_id: int, client_id: str, auth_bytes: bytes
) -> bytes:
    """A whole frame of version 0 to 2."""
    out = begin_request(ApiKey.SASL_AUTHENTICATE, version, correlation_id, client_id)
    out.records(len(auth_bytes))
    out.raw(auth_bytes)
    return framed(out)


def decode_sasl_authenticate_response(version: int, body: memoryview) -> SaslAuthenticateReply:
    """Read the answer. Raises ProtocolError, and nothing else."""
    flexible = is_flexible(ApiKey.SASL_AUTHENTICATE, version)
    reader = WireReader(body, f"SASL_AUTHENTICATE v{version} response", flexible=flexible)
    error_code = reader.int16()
    message = reader.nullable_string()
    size = reader.array(1)
    auth_bytes = bytes(reader.rest()[:size])
    reader.skip(size)
    lifetime_ms = reader.unpack(_INT64)[0] if version >= 1 else 0
    reader.skip_tags()
    return SaslAuthenticateReply(error_code, message, auth_bytes, lifetime_ms)
