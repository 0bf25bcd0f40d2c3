"""The Kafka protocol on one connection, without the socket: requests to bytes, bytes to answers.

An exchange is a request, and what to do with its answer. Connections carry exchanges. The handshake
is ApiVersions (KIP-35, KIP-511). Each request has a correlation id. A broker answers the requests
of a connection in order, so each response belongs to the oldest request. At most ``max_in_flight``
requests are unanswered. This module does not block, read a clock or use threads.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Generic, Protocol, TypeAlias, TypeVar

from kprod.clock import ExponentialBackoff
from kprod.errors import BrokerError, ErrorCode, KprodError, ProtocolError, UnsupportedVersionError
from kprod.wire.control import (
    KPROD,
    ApiVersionsReply,
    decode_api_versions_response,
    encode_api_versions_request,
)
from kprod.wire.framing import FrameReader, split_response_header
from kprod.wire.versions import SUPPORTED, ApiKey, ApiVersions, asks_for_silence

if TYPE_CHECKING:
    from kprod.sender.login import Login, LoginSettings

Buffers: TypeAlias = Sequence[bytes | memoryview]

LAST_CORRELATION_ID = 2**31 - 1
LONGEST_SILENCE_MS = 300_000
HINTS = {
    ApiKey.METADATA: "is this the address of a controller? producers need that of a broker",
    ApiKey.INIT_PRODUCER_ID: "idempotent producers need it; enable_idempotence=False does without",
}
FOREVER = float("inf")
MAX_FRAME_OF_STRANGERS = 512 * 1024
"""Maximum bytes of a frame before the broker's API versions are known and the login is over."""
SETUP = frozenset({ApiKey.API_VERSIONS, ApiKey.SASL_HANDSHAKE, ApiKey.SASL_AUTHENTICATE})
"""The requests of handshake and login. Libraries and code of the application take part in a
login."""


class Failed(Protocol):
    """See ``Exchange.failed``."""

    def __call__(self, error: KprodError, now: float, *, sent: bool) -> None: ...


class Exchange:
    """A request in flight. It ends exactly once, by ``answered`` or by ``failed``.

    ``api`` and ``version_cap`` (None: no cap) determine the version. ``expects_response`` is False
    only for Produce with acks=0, which ends when the socket has taken its last byte.

    The connection uses the other attributes. ``since`` is when the request was queued, or when
    the socket last took bytes of it. ``left`` are the bytes that the socket has not taken, and
    ``left_bytes`` is their number. ``may_be_read``: the last byte may have reached the broker.
    """

    api: ApiKey
    version_cap: int | None = None
    expects_response = True

    version = correlation_id = 0
    since = 0.0
    left: Buffers = ()
    left_bytes = 0
    may_be_read = False

    def encode(self, version: int, correlation_id: int, client_id: str) -> Buffers:
        """Return the whole frame, including the size prefix.

        Raises UnsupportedVersionError if this version cannot express the request. The request then
        fails, but the connection continues.
        """
        raise NotImplementedError

    def answered(self, version: int, body: memoryview, now: float) -> int:
        """Handle the response, and return its ``throttle_time_ms`` (KIP-219).

        Raises ProtocolError for a body that cannot be read, before it changes anything. The
        connection is then closed, and ``failed`` follows.
        """
        raise NotImplementedError

    def failed(self, error: KprodError, now: float, *, sent: bool) -> None:
        """No response will come.

        ``sent``: the last byte may have been sent, so the broker may have acted on the request.
        Before the last byte, a broker cannot act: a request begins with its size, and the broker
        waits for all of it.
        """
        raise NotImplementedError

    def took(self, nbytes: int) -> None:
        """The socket took the first ``nbytes`` of the remaining bytes, but not all of them."""
        self.left_bytes -= nbytes
        for place, buffer in enumerate(self.left):
            if nbytes < len(buffer):
                self.left = [memoryview(buffer)[nbytes:], *self.left[place + 1 :]]
                return
            nbytes -= len(buffer)


class Reply(Protocol):
    """A decoded answer."""

    @property
    def throttle_ms(self) -> int: ...


R = TypeVar("R", bound=Reply)


class ControlRequest(Exchange, Generic[R]):
    """A request other than Produce. Functions write it, read its answer, and handle its end.

    ``encode`` takes version, correlation id and client id, and returns the whole frame. ``decode``
    takes version and body. ``answered`` takes the result of ``decode``. ``failed`` is None if the
    connection ends, with a reason, when the request fails.
    """

    def __init__(
        self,
        api: ApiKey,
        encode: Callable[[int, int, str], bytes],
        decode: Callable[[int, memoryview], R],
        answered: Callable[[R, float], object],
        failed: Failed | None = None,
        version_cap: int | None = None,
    ) -> None:
        self.api = api
        self.version_cap = version_cap
        self._encode = encode
        self._decode = decode
        self._answered = answered
        self._failed = failed

    def encode(self, version: int, correlation_id: int, client_id: str) -> Buffers:
        encode = self._encode
        del self._encode  # a request is written once, and may hold a password
        return [encode(version, correlation_id, client_id)]

    def answered(self, version: int, body: memoryview, now: float) -> int:
        reply = self._decode(version, body)
        self._answered(reply, now)
        return reply.throttle_ms

    def failed(self, error: KprodError, now: float, *, sent: bool) -> None:
        if self._failed is not None:
            self._failed(error, now, sent=sent)


@dataclass(frozen=True, slots=True)
class BrokerSettings:
    """The settings that all brokers of a producer share. Times are in seconds.

    ``setup`` limits the time of connecting, handshake and login; the limit grows each time it was
    too short (KIP-601). If a broker does not offer all APIs of ``needed``, the handshake fails. The
    peer may not be a broker, or its answer may be garbled. Without this check, a request would find
    no version later, and fail its records. ``learners`` are called after every handshake with the
    API versions that the broker offers. ``software``: the name and the version that brokers
    are given. ``window``: the arguments of each broker's ``Window``.
    """

    client_id: str
    max_in_flight: int
    max_frame_bytes: int
    request_timeout: float
    setup: ExponentialBackoff
    idle_timeout: float
    reconnect: ExponentialBackoff
    needed: tuple[ApiKey, ...] = ()
    login: LoginSettings | None = None
    learners: list[Callable[[ApiVersions], None]] = field(default_factory=list)
    software: tuple[str, str] = KPROD
    window: tuple[int, int, float] = (1, 1, FOREVER)


class BrokerConnection:
    """The protocol state of one connection. Used only by the owner of the loop.

    The caller calls ``open`` when bytes can be sent. It writes ``pending_output``, reports the
    number of written bytes to ``wrote``, and passes received bytes to ``received``. At the end it
    calls ``close``, which fails all unanswered requests.

    ``login``: None if brokers expect no login. ``on_request`` gets the size of each request that is
    queued, including those of handshake and login.
    """

    def __init__(
        self,
        settings: BrokerSettings,
        login: Login | None = None,
        on_request: Callable[[int], None] = lambda nbytes: None,
    ) -> None:
        self._settings = settings
        self._max_in_flight = settings.max_in_flight
        self.login = login
        self.on_request = on_request
        self._frames = FrameReader(min(settings.max_frame_bytes, MAX_FRAME_OF_STRANGERS))
        self.versions: ApiVersions | None = None  # what the broker offers, after the handshake
        self.unanswered: deque[Exchange] = deque()  # oldest first
        self.output: deque[Exchange] = deque()  # some bytes of each wait for the socket
        self.is_sending = False  # a transport has the output: after an exception it may have left
        self._next_correlation_id = 0
        self._throttled_until = 0.0
        self.steady = False
        """True while requests may be sent: there is no silence to keep, and no login that is
        due."""
        self.can_send = False
        """True while a request may be sent, and would be written immediately."""
        self.next_change = FOREVER
        """When ``pass_time`` must be called even if no bytes arrive, or infinity."""
        self.useful = False
        """True once a request has succeeded that is not part of the handshake."""
        self._closed = False
        self.internal_error: BaseException | None = None
        """The exception of an exchange if it is not the broker's fault, for example a
        MemoryError."""

    @property
    def established(self) -> bool:
        """True when handshake and login are over, so that requests can be sent."""
        login = self.login
        return self.versions is not None and (login is None or login.established)

    def open(self, now: float, version: int = SUPPORTED[ApiKey.API_VERSIONS][1]) -> None:
        """Bytes can be sent: start the handshake with ``version`` of its request."""
        encode = partial(encode_api_versions_request, software=self._settings.software)
        decode, answered = decode_api_versions_response, partial(self._handshake_answered, version)
        self.send(ControlRequest(ApiKey.API_VERSIONS, encode, decode, answered), now, version)

    def _handshake_answered(self, version: int, reply: ApiVersionsReply, now: float) -> None:
        if reply.error_code == ErrorCode.UNSUPPORTED_VERSION and version > 0:
            _, offered = reply.ranges.get(ApiKey.API_VERSIONS, (0, 0))
            self.open(now, max(0, min(offered, version - 1)))
            return
        if reply.error_code:
            raise ProtocolError(
                f"the ApiVersions handshake was refused: {BrokerError(reply.error_code)}"
            )
        versions = ApiVersions(reply.ranges, reply.features, reply.features_epoch)
        for api in self._settings.needed:
            try:
                versions.pick(api)
            except UnsupportedVersionError as error:
                hint = f"; {HINTS[api]}" if api in HINTS else ""
                raise UnsupportedVersionError(f"{error}{hint}") from None
        self.versions = versions
        for learn in self._settings.learners:
            learn(versions)
        if self.login is not None:
            self.login.begin(self.send, now)

    def pass_time(self, now: float) -> None:
        """Log in again if it is time, continue a login if it is ready, or end a silence.

        Raises KprodError if the login failed. The connection must then be closed.
        """
        login = self.login
        if login is not None and self.versions is not None:
            if now >= login.due:
                login.begin(self.send, now)
            login.proceed(now)
        self._settle(now)

    def _settle(self, now: float) -> None:
        """Update what depends on the state of the handshake, of the login and of a silence."""
        login, established = self.login, self.established
        if established:
            self._frames.allow(self._settings.max_frame_bytes)
        silent = now < self._throttled_until
        self.steady = established and not silent
        self.next_change = self._throttled_until if silent else FOREVER
        if login is not None:
            self.steady = self.steady and not login.under_way and now < login.holds_until
            login_due = login.holds_until if self.steady else login.due
            self.next_change = min(self.next_change, login_due)
        room = len(self.unanswered) < self._max_in_flight
        self.can_send = self.steady and room and not self.output

    @property
    def logs_in(self) -> bool:
        """True during a login, when only its messages may be sent."""
        return self.login is not None and self.login.under_way

    def throttled_for(self, now: float) -> float:
        """The seconds left of a silence that the broker asked for."""
        return max(0.0, self._throttled_until - now)

    def send(self, exchange: Exchange, now: float, version: int | None = None) -> None:
        """Queue a request of ``version``; None means the newest version that both sides know.

        Raises UnsupportedVersionError if there is no such version, and whatever ``encode`` raises.
        Nothing is queued then.
        """
        if version is None:
            if self.versions is None:
                raise UnsupportedVersionError("the connection's handshake is not over")
            version = self.versions.pick(exchange.api, exchange.version_cap)
        correlation_id = self._next_correlation_id
        self._next_correlation_id = (correlation_id + 1) & LAST_CORRELATION_ID
        exchange.left = frame = exchange.encode(version, correlation_id, self._settings.client_id)
        exchange.left_bytes = size = sum(map(len, frame))
        exchange.version, exchange.correlation_id, exchange.since = version, correlation_id, now
        exchange.may_be_read = False  # if it is repeated
        self.output.append(exchange)
        self.unanswered.append(exchange)
        self.can_send = False
        self.on_request(size)

    def pending_output(self) -> Buffers:
        """The bytes to write to the socket, in order."""
        return [buffer for exchange in self.output for buffer in exchange.left]

    def offered(self) -> None:
        """All output may reach the broker now, because the transport buffers bytes itself."""
        for exchange in self.output:
            exchange.may_be_read = True

    def wrote(self, nbytes: int, now: float) -> None:
        """The socket took ``nbytes``.

        A fully written request that expects no response ends here.
        """
        output, unanswered = self.output, self.unanswered
        unanswerable: list[Exchange] = []
        while nbytes:
            exchange = output[0]
            exchange.since = now
            if nbytes < exchange.left_bytes:
                exchange.took(nbytes)
                break
            nbytes -= exchange.left_bytes
            exchange.left, exchange.left_bytes, exchange.may_be_read = (), 0, True
            output.popleft()
            if not exchange.expects_response:
                unanswerable.append(exchange)
        self.is_sending = False
        for exchange in unanswerable:
            unanswered.remove(exchange)
            self.useful = True
            self._answer(exchange, memoryview(b""), now)
        self.can_send = self.steady and not output and len(unanswered) < self._max_in_flight

    def received(self, chunk: bytes, now: float) -> int:
        """Bytes arrived.

        Ends the exchanges that they answer; returns the number of complete frames. Raises
        ProtocolError if the bytes are invalid, and UnsupportedVersionError if the broker does not
        offer a needed API.
        """
        frames = self._frames.feed(chunk)
        for frame in frames:
            if self._closed:  # the frame before this one has ended the connection
                break
            self._match(frame, now)
        return len(frames)

    def _match(self, frame: memoryview, now: float) -> None:
        unanswered = self.unanswered
        if not unanswered:
            raise ProtocolError("the broker sent a response to no request")
        exchange = unanswered[0]
        if exchange.left_bytes:
            raise ProtocolError("the broker answered a request that was not fully sent")
        api, version = exchange.api, exchange.version
        correlation_id, body = split_response_header(api, version, frame)
        if correlation_id != exchange.correlation_id:
            raise ProtocolError(
                f"the broker answered request {correlation_id},"
                f" but {exchange.correlation_id} is the oldest"
            )
        # Taken off first: the answer may lead to close(), which must not end the exchange a second
        # time. Put back when the answer could not be read, so that close() ends it.
        unanswered.popleft()
        useful = self.useful or self.steady or self.established
        throttle_ms = self._answer(exchange, body, now)
        self.useful = useful
        if throttle_ms > 0 and asks_for_silence(api, version):
            self._apply_throttle(min(throttle_ms, LONGEST_SILENCE_MS) / 1000, now)
        if self.steady:
            self.can_send = not self.output and len(unanswered) < self._max_in_flight
        else:
            self._settle(now)

    def _apply_throttle(self, seconds: float, now: float) -> None:
        self.steady = False
        self._throttled_until = max(self._throttled_until, now + seconds)

    def _answer(self, exchange: Exchange, body: memoryview, now: float) -> int:
        try:
            return exchange.answered(exchange.version, body, now)
        except BaseException as error:
            self.unanswered.appendleft(exchange)
            if exchange.api not in SETUP and not isinstance(error, KprodError):
                self.internal_error = error
            raise

    def waiting_since(self) -> float | None:
        """Since when the broker has kept this connection waiting; None if it does not.

        This is ``Exchange.since`` of the oldest unanswered request, or the end of a silence that
        the broker asked for, if that is later: the broker reads nothing before it (KIP-219). If all
        requests are answered, but a message of a login is being prepared here, this is when the
        preparation began: the same time limit applies.
        """
        if not self.unanswered:
            return None if self.login is None else self.login.begun
        return max(self.unanswered[0].since, self._throttled_until)

    def close(self, error: KprodError, now: float) -> None:
        """The connection has ended: fail every unanswered request, oldest first."""
        self._closed = True
        self.output.clear()
        self.versions = None
        self.steady = self.can_send = False
        while self.unanswered:
            exchange = self.unanswered.popleft()
            exchange.left = ()  # its views: the memory goes back to the pool
            in_doubt = self.is_sending and exchange.left_bytes > 0
            exchange.failed(error, now, sent=exchange.may_be_read or in_doubt)
