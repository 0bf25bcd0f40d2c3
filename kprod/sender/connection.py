"""The Kafka protocol on one connection, without the socket: requests in, bytes out, and back.

Handshake by ApiVersions (KIP-35, KIP-511), a correlation id per request, responses matched in the
order of their requests (a broker answers one connection in order), at most ``max_in_flight``
requests unanswered. Nothing here blocks, reads a clock or knows a thread.
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
"""Bytes of a frame from a broker before its versions are known, and before the login."""
SETUP = frozenset({ApiKey.API_VERSIONS, ApiKey.SASL_HANDSHAKE, ApiKey.SASL_AUTHENTICATE})
"""The requests before a connection is of use: other libraries and the application take part."""
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
"""Their answers may be as long as ``receive_message_max_bytes``: they hold records, all that a
broker coordinates, or text for each partition that the request names (metadata of 4 KiB with each
offset, by default)."""
LONGEST_OTHER_ANSWER = 1024 * 1024
"""Bytes: room for the results of 50,000 partitions of a transaction."""


class BrokerConnection:
    """One connection's protocol state. Used by the sender's thread only.

    The driver calls ``open`` once bytes may flow, writes ``pending_output`` and reports that to
    ``wrote``, feeds ``received``, and ends with ``close``, which fails whatever is unanswered. A
    broker that offers no version of an API among ``needed`` fails the handshake: it may be no
    broker, or its answer was garbled, and a request that finds no version would fail its records.
    ``learners``
    get the versions that the broker offers, ``on_request`` the bytes of each request that is
    queued, those of handshakes and logins too. ``software``: name and version.
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
        """True while established, not asked to be silent, and without a login that is due."""
        self.can_send = False
        """True while a request handed over would start to leave at once."""
        self.next_change = FOREVER
        """When ``pass_time`` is to be called though no byte came; infinite for never."""
        self.useful = False
        """True once a request has succeeded that is not part of the handshake."""
        self._closed = False
        self.mistake: BaseException | None = None
        """The exception of an exchange for which no broker is to blame: memory has run out, say."""

    @property
    def established(self) -> bool:
        """True once the handshake is over, the login as well, and requests may be sent."""
        login = self._login
        return self._versions is not None and (login is None or login.established)

    def offers(self, api: ApiKey, cap: int | None = None) -> bool:
        """True when the broker has a version of this request, of at most ``cap``, that we know."""
        return self._versions is not None and self._versions.offers(api, cap)

    @property
    def in_flight(self) -> int:
        """Requests without a response."""
        return len(self.unanswered)

    def open(self, now: float) -> None:
        """Bytes may flow: start the handshake."""
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
        """Log in again if it is time, go on with a login that waits for us, or end a silence.

        Raises KprodError when the login failed; the connection is of no use then.
        """
        login = self._login
        if login is not None and self._versions is not None:
            if now >= login.due:
                login.begin(now)
            login.proceed(now)
        self._settle(now)

    def _settle(self, now: float) -> None:
        """Set what follows from the state of the handshake, of the login and of a silence."""
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
        """True while a login is under way, and only its messages come and go."""
        return self._login is not None and self._login.under_way

    @property
    def prepares_login(self) -> bool:
        """True while the login's next message is worked out here, and the broker waits for it."""
        return self._login is not None and self._login.begun is not None

    def throttled_for(self, now: float) -> float:
        """Seconds for which the broker asked us to be silent."""
        return max(0.0, self._throttled_until - now)

    def send(self, exchange: Exchange, now: float, version: int | None = None) -> None:
        """Queue a request, of the newest version that both sides know unless one is given.

        Raises UnsupportedVersionError when no version fits, and whatever ``encode`` raises, having
        queued nothing.
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
        """The bytes that wait for the socket, in order."""
        return [buffer for exchange in self.output for buffer in exchange.left]

    def offered(self) -> None:
        """All output may leave before ``wrote`` says so: the transport buffers bytes itself."""
        for exchange in self.output:
            exchange.may_be_read = True

    def wrote(self, nbytes: int, now: float) -> None:
        """The socket took ``nbytes``. Requests that expect no response end here."""
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
        """Bytes came; returns the number of frames that they complete.

        Ends the exchanges they answer; raises ProtocolError when they make no sense, and
        UnsupportedVersionError when the broker offers no version of a needed API.
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
        """The time since which the broker has to answer or to read; None when it has not.

        Or since when a login's next message is worked out here: that takes as long at most.

        Not before the last bytes it took of its oldest request, nor before the end of a silence it
        asked for: that may be in the future.
        """
        if not self.unanswered:
            return None if self._login is None else self._login.begun
        return self.unanswered[0].since

    def close(self, error: KprodError, now: float) -> None:
        """The connection is gone: fail every unanswered request, oldest first.

        Raises what one of them raised, once all have failed.
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
