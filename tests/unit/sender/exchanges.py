"""Requests that record their outcome, and the bytes of a broker's responses."""

from __future__ import annotations

from dataclasses import replace

from kprod.clock import ExponentialBackoff
from kprod.errors import KprodError, ProtocolError
from kprod.sender.connection import BrokerConnection, BrokerSettings, Buffers, Exchange
from kprod.transport.memory import ServerEnd
from kprod.wire.framing import FrameReader
from kprod.wire.versions import ApiKey
from tests.support.kio_messages import response
from tests.support.scripted_cluster import OFFERED, api_keys
from tests.support.steady_random import SteadyRandom

REQUEST = b"a request, size prefix included"
NOW = 100.0
SASL = {ApiKey.SASL_HANDSHAKE: (0, 1), ApiKey.SASL_AUTHENTICATE: (0, 2)}
SETTINGS = BrokerSettings(
    client_id="client",
    max_in_flight=5,
    max_frame_bytes=1000,
    request_timeout=30,
    setup=ExponentialBackoff(10, 30, SteadyRandom()),
    idle_timeout=540,
    reconnect=ExponentialBackoff(0.05, 1.0, SteadyRandom()),
)


class RecordedExchange(Exchange):
    """``ends`` gets ("answered", body) or ("failed", sent)."""

    def __init__(
        self,
        *buffers: bytes,
        api: ApiKey = ApiKey.METADATA,
        expects_response: bool = True,
        throttle_ms: int = 0,
        refuses: bool = False,
        version_cap: int | None = None,
    ) -> None:
        self.api = api
        self.version_cap = version_cap
        self.expects_response = expects_response
        self.versions: list[int] = []
        self.correlation_ids: list[int] = []
        self.ends: list[tuple[str, object]] = []
        self._buffers = buffers or (REQUEST,)
        self._throttle_ms = throttle_ms
        self._refuses = refuses

    def encode(self, version: int, correlation_id: int, client_id: str) -> Buffers:
        self.versions.append(version)
        self.correlation_ids.append(correlation_id)
        return list(self._buffers)

    def answered(self, version: int, body: memoryview, now: float) -> int:
        if self._refuses:
            raise ProtocolError("this body cannot be read")
        self.ends.append(("answered", bytes(body)))
        return self._throttle_ms

    def failed(self, error: KprodError, now: float, *, sent: bool) -> None:
        self.ends.append(("failed", sent))


class Unwritable(RecordedExchange):
    """Its encoding raises ``cause``; ``errors`` gets the error it failed with."""

    def __init__(self, cause: Exception) -> None:
        super().__init__()
        self.errors: list[KprodError] = []
        self._cause = cause

    def encode(self, version: int, correlation_id: int, client_id: str) -> Buffers:
        raise self._cause

    def failed(self, error: KprodError, now: float, *, sent: bool) -> None:
        super().failed(error, now, sent=sent)
        self.errors.append(error)


def frame(message: bytes) -> bytes:
    """A message with its size prefix."""
    return len(message).to_bytes(4, "big") + message


def answer(correlation_id: int, body: bytes) -> bytes:
    """A response with header version 1."""
    return frame(correlation_id.to_bytes(4, "big") + b"\x00" + body)


def handshake_answer(correlation_id: int, version: int = 4, error: int = 0) -> bytes:
    """A broker's ApiVersions response, in the layout of that version."""
    offered = api_keys({**OFFERED, ApiKey.OFFSET_FETCH: (1, 9)})
    body = response(ApiKey.API_VERSIONS, version, error_code=error, api_keys=offered)
    return frame(correlation_id.to_bytes(4, "big") + bytes(body))


def able(connection: BrokerConnection, now: float) -> bool:
    """Whether the connection takes a request at this time."""
    connection.pass_time(now)
    return connection.can_send


def opened(max_in_flight: int = 5) -> BrokerConnection:
    """A connection before its handshake, which has correlation id 0."""
    settings = replace(SETTINGS, max_in_flight=max_in_flight, max_frame_bytes=1_000_000)
    connection = BrokerConnection(settings)
    connection.open(NOW)
    return connection


def write(connection: BrokerConnection) -> bytes:
    """Write all pending output; the bytes."""
    data = b"".join(connection.pending_output())
    connection.wrote(len(data), NOW)
    return data


class RawServer:
    """Accepts connections, and answers their handshakes if ``handshakes``."""

    def __init__(self, *, handshakes: bool = True) -> None:
        self.handshakes = handshakes
        self.ends: list[RawEnd] = []

    def accept(self) -> ServerEnd:
        self.ends.append(RawEnd(self.handshakes))
        return self.ends[-1]


class RawEnd:
    """One accepted connection; ``frames`` are the received messages without their sizes."""

    def __init__(self, handshakes: bool) -> None:
        self.frames: list[bytes] = []
        self._handshakes = handshakes
        self._reader = FrameReader()

    def receive(self, data: bytes) -> bytes:
        first = not self.frames
        self.frames += [bytes(message) for message in self._reader.feed(data)]
        return handshake_answer(0) if self._handshakes and first and self.frames else b""
