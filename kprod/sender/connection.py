"""The Kafka protocol on one connection, without the socket: requests to bytes, bytes to answers.

The handshake is ApiVersions (KIP-35, KIP-511). Each request has a correlation id. A broker answers
the requests of a connection in order, so each response belongs to the oldest request. At most
``max_in_flight`` requests are unanswered. This module does not block, read a clock or use threads.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from functools import partial

from kprod.errors import BrokerError, ErrorCode, KprodError, ProtocolError, UnsupportedVersionError
from kprod.sender.exchange import Buffers, ControlRequest, Exchange
from kprod.sender.login import Login, LoginSettings
from kprod.wire.control import (
    KPROD,
    ApiVersionsReply,
    decode_api_versions_response,
    encode_api_versions_request,
)
from kprod.wire.framing import FrameReader, split_response_header
from kprod.wire.versions import SUPPORTED, ApiKey, ApiVersions, asks_for_silence

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
LONG_ANSWERS = frozenset(
    {
        ApiKey.METADATA,
        ApiKey.PRODUCE,
        ApiKey.FETCH,
        ApiKey.OFFSET_FETCH,
        ApiKey.LIST_TRANSACTIONS,
        ApiKey.DESCRIBE_TRANSACTIONS,
    }
)
"""Requests whose answers may be as long as ``receive_message_max_bytes``: they contain records,
everything that a broker coordinates, or text for each partition of the request (by default, up to 4
KiB of metadata with each offset)."""
LONGEST_OTHER_ANSWER = 1024 * 1024
"""In bytes. It is enough for the results of 50,000 partitions of a transaction."""


class BrokerConnection:
    """The protocol state of one connection. Used only by the sender's thread.

    The caller calls ``open`` when bytes can be sent. It writes ``pending_output``, reports the
    number of written bytes to ``wrote``, and passes received bytes to ``received``. At the end it
    calls ``close``, which fails all unanswered requests.

    ``needed``: if the broker does not offer all these APIs, the handshake fails. The peer may not
    be a broker, or its answer may be garbled. Without this check, a request would find no version
    later, and fail its records. ``learners`` get the versions that the broker offers.
    ``on_request`` gets the size of each request that is queued, including those of handshake and
    login. ``software``: the name and the version that the broker is told.
    """

    def __init__(
        self,
        client_id: str,
        *,
        software: tuple[str, str] = KPROD,
        max_in_flight: int,
        max_frame_bytes: int,
        needed: Sequence[ApiKey] = (),
        login: LoginSettings | None = None,
        wake: Callable[[], None] = lambda: None,
        learners: Sequence[Callable[[ApiVersions], None]] = (),
        on_request: Callable[[int], None] = lambda nbytes: None,
    ) -> None:
        self._client_id = client_id
        self._software = software
        self.on_request = on_request
        self._needed = needed
        self._learners = learners
        self._max_in_flight = max_in_flight
        self._max_frame_bytes = max_frame_bytes
        self._frames = FrameReader(min(max_frame_bytes, MAX_FRAME_OF_STRANGERS))
        self._login = None if login is None else Login(login, self.send, wake)
        self._versions: ApiVersions | None = None
        self.unanswered: deque[Exchange] = deque()  # oldest first
        self.output: deque[Exchange] = deque()  # some bytes of each wait for the socket
        self.is_sending = False  # a transport has the output: after an exception it may have left
        self._next_correlation_id = 0
        self._throttled_until = 0.0
        self.steady = False
        """True while requests may be sent: there is no silence to keep, and no login that is
        due."""
        self.can_send = False
        """True while a request that is sent would be written immediately."""
        self.next_change = FOREVER
        """When ``pass_time`` must be called even if no bytes arrive, or infinity."""
        self.useful = False
        """True once a request has succeeded that is not part of the handshake."""
        self._closed = False
        self.mistake: BaseException | None = None
        """The exception of an exchange if it is not the broker's fault, for example a
        MemoryError."""

    @property
    def established(self) -> bool:
        """True when handshake and login are over, so that requests can be sent."""
        login = self._login
        return self._versions is not None and (login is None or login.established)

    def offers(self, api: ApiKey, cap: int | None = None) -> bool:
        """True if broker and kprod share a version of this request that is at most ``cap``."""
        return self._versions is not None and self._versions.offers(api, cap)

    @property
    def in_flight(self) -> int:
        """The number of requests without a response."""
        return len(self.unanswered)

    def open(self, now: float) -> None:
        """Bytes can be sent: start the handshake."""
        self._start_handshake(SUPPORTED[ApiKey.API_VERSIONS][1], now)

    def _start_handshake(self, version: int, now: float) -> None:
        encode = partial(encode_api_versions_request, software=self._software)
        decode, answered = decode_api_versions_response, partial(self._handshake_answered, version)
        self.send(ControlRequest(ApiKey.API_VERSIONS, encode, decode, answered), now, version)

    def _handshake_answered(self, version: int, reply: ApiVersionsReply, now: float) -> None:
        if reply.error_code == ErrorCode.UNSUPPORTED_VERSION and version > 0:
            _, offered = reply.ranges.get(ApiKey.API_VERSIONS, (0, 0))
            self._start_handshake(max(0, min(offered, version - 1)), now)
            return
        if reply.error_code:
            raise ProtocolError(
                f"the ApiVersions handshake was refused: {BrokerError(reply.error_code)}"
            )
        self._adopt(ApiVersions(reply.ranges, reply.features, reply.features_epoch), now)

    def _adopt(self, versions: ApiVersions, now: float) -> None:
        for api in self._needed:
            try:
                versions.pick(api)
            except UnsupportedVersionError as error:
                hint = f"; {HINTS[api]}" if api in HINTS else ""
                raise UnsupportedVersionError(f"{error}{hint}") from None
        self._versions = versions
        for learn in self._learners:
            learn(versions)
        if self._login is not None:
            self._login.begin(now)

    def pass_time(self, now: float) -> None:
        """Log in again if it is time, continue a login if it is ready, or end a silence.

        Raises KprodError if the login failed. The connection must then be closed.
        """
        login = self._login
        if login is not None and self._versions is not None:
            if now >= login.due:
                login.begin(now)
            login.proceed(now)
        self._settle(now)

    def _settle(self, now: float) -> None:
        """Update what depends on the state of the handshake, of the login and of a silence."""
        login, established = self._login, self.established
        if established:
            self._frames.allow(self._max_frame_bytes)
        silent = now < self._throttled_until
        self.steady = established and not silent
        self.next_change = self._throttled_until if silent else FOREVER
        if login is not None:
            self.steady = self.steady and not login.under_way and now < login.holds_until
            login_due = login.holds_until if self.steady else login.due
            self.next_change = min(self.next_change, login_due)
        self._settle_room()

    def _settle_room(self) -> None:
        room = len(self.unanswered) < self._max_in_flight
        self.can_send = self.steady and room and not self.output

    @property
    def logs_in(self) -> bool:
        """True during a login, when only its messages may be sent."""
        return self._login is not None and self._login.under_way

    @property
    def prepares_login(self) -> bool:
        """True while the broker waits for a message of the login, which is being prepared here."""
        return self._login is not None and self._login.begun is not None

    def throttled_for(self, now: float) -> float:
        """The seconds left of a silence that the broker asked for."""
        return max(0.0, self._throttled_until - now)

    def send(self, exchange: Exchange, now: float, version: int | None = None) -> None:
        """Queue a request of ``version``; None means the newest version that both sides know.

        Raises UnsupportedVersionError if there is no such version, and whatever ``encode`` raises.
        Nothing is queued then.
        """
        if version is None:
            if self._versions is None:
                raise UnsupportedVersionError("the connection's handshake is not over")
            version = self._versions.pick(exchange.api, exchange.version_cap)
        correlation_id = self._next_correlation_id
        self._next_correlation_id = (correlation_id + 1) & LAST_CORRELATION_ID
        exchange.left = frame = exchange.encode(version, correlation_id, self._client_id)
        exchange.left_bytes = size = sum(map(len, frame))
        exchange.version, exchange.correlation_id, exchange.since = version, correlation_id, now
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
        if len(body) > LONGEST_OTHER_ANSWER and api not in LONG_ANSWERS:
            raise ProtocolError(
                f"{api.name} v{version} response: {len(body)} bytes,"
                f" {LONGEST_OTHER_ANSWER} are the most to be expected"
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
        for exchange in self.unanswered:  # the broker does not read them before that (KIP-219)
            exchange.since = max(exchange.since, self._throttled_until)

    def _answer(self, exchange: Exchange, body: memoryview, now: float) -> int:
        try:
            return exchange.answered(exchange.version, body, now)
        except BaseException as error:
            self.unanswered.appendleft(exchange)
            if exchange.api not in SETUP and not isinstance(error, KprodError):
                self.mistake = error
            raise

    def waiting_since(self) -> float | None:
        """Since when the broker has kept this connection waiting; None if it does not.

        This is ``Exchange.since`` of the oldest unanswered request. It may be in the future, if the
        broker asked for silence. If all requests are answered, but a message of a login is being
        prepared here, this is when the preparation began: the same time limit applies.
        """
        if not self.unanswered:
            return None if self._login is None else self._login.begun
        return self.unanswered[0].since

    def close(self, error: KprodError, now: float) -> None:
        """The connection has ended: fail every unanswered request, oldest first.

        An exception of one of them is raised after all have failed.
        """
        self._closed = True
        self.output.clear()
        self._versions = None
        self.steady = self.can_send = False
        mistake: Exception | None = None
        while self.unanswered:
            exchange = self.unanswered.popleft()
            exchange.left = ()  # its views: the memory goes back to the pool
            try:
                in_doubt = self.is_sending and exchange.left_bytes > 0
                exchange.failed(error, now, sent=exchange.may_be_read or in_doubt)
            except Exception as raised:
                mistake = raised
        if mistake is not None:
            raise mistake
