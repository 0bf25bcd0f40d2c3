"""The Kafka protocol on one connection, without the socket: requests in, bytes out, and back.

Handshake by ApiVersions (KIP-35, KIP-511), a correlation id per request, responses matched in the
order of their requests (a broker answers one connection in order), at most ``max_in_flight``
requests unanswered. Nothing here blocks, reads a clock or knows a thread.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence

from kprod.errors import BrokerError, ErrorCode, KprodError, ProtocolError, UnsupportedVersionError
from kprod.sender.exchange import Buffers, ControlRequest, Exchange
from kprod.sender.login import Login, LoginSettings
from kprod.wire.control import decode_api_versions_response, encode_api_versions_request
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
"""Bytes of a frame from a broker before it has told its versions, and before the login."""
SETUP = frozenset({ApiKey.API_VERSIONS, ApiKey.SASL_HANDSHAKE, ApiKey.SASL_AUTHENTICATE})
"""The requests before a connection is of use: other libraries and the application take part."""
LONG_ANSWERS = frozenset({ApiKey.METADATA, ApiKey.PRODUCE})
"""Their answers may be as long as the option allows; the request limits them."""
LONGEST_OTHER_ANSWER = 1024 * 1024
"""Bytes: room for the results of 50,000 partitions of a transaction."""


class _Unanswered:
    def __init__(
        self, exchange: Exchange, version: int, correlation_id: int, since: float, frame: Buffers
    ) -> None:
        self.exchange = exchange
        self.version = version
        self.correlation_id = correlation_id
        self.since = since  # the latest of: queued, last byte taken, end of a silence
        self.left = frame  # the bytes that the socket has not taken
        self.left_bytes = self.size = sum(map(len, frame))
        self.may_be_read = False  # its last byte may have reached the broker

    def took(self, nbytes: int) -> None:
        """The socket took the first ``nbytes`` of the bytes left, but not all."""
        self.left_bytes -= nbytes
        for place, buffer in enumerate(self.left):
            if nbytes < len(buffer):
                self.left = [memoryview(buffer)[nbytes:], *self.left[place + 1 :]]
                return
            nbytes -= len(buffer)


class BrokerConnection:
    """One connection's protocol state. Used by the sender's thread only.

    The driver calls ``open`` once bytes may flow, writes ``pending_output`` and tells ``wrote``,
    feeds ``received``, and ends with ``close``, which fails whatever is unanswered. A broker that
    offers no version of an API among ``needed`` fails the handshake: it may be no broker, or its
    answer was garbled, and a request that finds no version would fail its records. ``on_versions``
    gets the versions that the broker offers, ``on_request`` the bytes of each request that is
    queued, those of handshakes and logins too.
    """

    def __init__(
        self,
        client_id: str,
        *,
        max_in_flight: int,
        max_frame_bytes: int,
        needed: Sequence[ApiKey] = (),
        login: LoginSettings | None = None,
        wake: Callable[[], None] = lambda: None,
        on_versions: Callable[[ApiVersions], None] | None = None,
        on_request: Callable[[int], None] = lambda nbytes: None,
    ) -> None:
        self._client_id = client_id
        self._on_request = on_request
        self._needed = needed
        self._on_versions = on_versions
        self._max_in_flight = max_in_flight
        self._max_frame_bytes = max_frame_bytes
        self._frames = FrameReader(min(max_frame_bytes, MAX_FRAME_OF_STRANGERS))
        self._login = None if login is None else Login(login, self._enqueue_newest, wake)
        self._versions: ApiVersions | None = None
        self._unanswered: deque[_Unanswered] = deque()
        self._output: deque[_Unanswered] = deque()  # some bytes of each wait for the socket
        self.is_sending = False  # a transport has the output: after an exception it may have left
        self._next_correlation_id = 0
        self._throttled_until = 0.0
        self._useful = False
        self._closed = False
        self.responses = 0  # received so far
        self.bytes_in_flight = 0  # of all requests without a response
        self.mistake: BaseException | None = None
        """The exception of an exchange for which no broker is to blame: memory has run out, say."""

    @property
    def established(self) -> bool:
        """True once the handshake is over, the login as well, and requests may be sent."""
        login = self._login
        return self._versions is not None and (login is None or login.established)

    def offers(self, api: ApiKey) -> bool:
        """True when the broker has said that it takes requests of this kind."""
        return self._versions is not None and self._versions.offers(api)

    @property
    def useful(self) -> bool:
        """True once a request has succeeded that is not part of the handshake."""
        return self._useful

    @property
    def in_flight(self) -> int:
        """Requests without a response."""
        return len(self._unanswered)

    def open(self, now: float) -> None:
        """Bytes may flow: start the handshake."""
        self._start_handshake(SUPPORTED[ApiKey.API_VERSIONS][1], now)

    def _start_handshake(self, version: int, now: float) -> None:
        handshake = ControlRequest(
            ApiKey.API_VERSIONS, encode_api_versions_request, self._handshake_answered
        )
        self._enqueue(handshake, version, now)

    def _handshake_answered(self, version: int, body: memoryview, now: float) -> int:
        reply = decode_api_versions_response(version, body)
        if reply.error_code == ErrorCode.UNSUPPORTED_VERSION and version > 0:
            _, offered = reply.ranges.get(ApiKey.API_VERSIONS, (0, 0))
            self._start_handshake(max(0, min(offered, version - 1)), now)
            return 0
        if reply.error_code:
            raise ProtocolError(
                f"the ApiVersions handshake was refused: {BrokerError(reply.error_code)}"
            )
        self._adopt(ApiVersions(reply.ranges, reply.features, reply.features_epoch), now)
        return reply.throttle_ms

    def _adopt(self, versions: ApiVersions, now: float) -> None:
        for api in self._needed:
            try:
                versions.pick(api)
            except UnsupportedVersionError as error:
                hint = f"; {HINTS[api]}" if api in HINTS else ""
                raise UnsupportedVersionError(f"{error}{hint}") from None
        self._versions = versions
        if self._on_versions is not None:
            self._on_versions(versions)
        if self._login is None:
            self._frames.allow(self._max_frame_bytes)
        else:
            self._login.begin(now)

    def _enqueue_newest(self, exchange: Exchange, now: float) -> None:
        if self._versions is not None:
            self._enqueue(exchange, self._versions.pick(exchange.api, exchange.version_cap), now)

    def tend_login(self, now: float) -> None:
        """Log in again if it is time, and go on with a login that waits for us.

        Raises KprodError when that failed; the connection is of no use then.
        """
        login = self._login
        if login is None or self._versions is None:
            return
        if now >= login.due:
            login.begin(now)
        login.proceed(now)
        self._look_whether_known()

    def _look_whether_known(self) -> None:
        if self._login is not None and self._login.established:
            self._frames.allow(self._max_frame_bytes)

    @property
    def logs_in(self) -> bool:
        """True while a login is under way, and only its messages come and go."""
        return self._login is not None and self._login.under_way

    @property
    def prepares_login(self) -> bool:
        """True while the login's next message is worked out here, and the broker waits for it."""
        return self._login is not None and self._login.begun is not None

    def login_due_in(self, now: float) -> float:
        """Seconds until ``tend_login`` should be called; infinite when no login ends."""
        return FOREVER if self._login is None else max(0.0, self._login.due - now)

    def can_send(self, now: float) -> bool:
        """True when a request handed over now would start to leave at once."""
        return (
            self._versions is not None
            and not self.logs_in
            and not self._output
            and len(self._unanswered) < self._max_in_flight
            and now >= self._throttled_until
            and (self._login is None or now < self._login.holds_until)
        )

    def throttled_for(self, now: float) -> float:
        """Seconds for which the broker asked us to be silent."""
        return max(0.0, self._throttled_until - now)

    def send(self, exchange: Exchange, now: float) -> None:
        """Queue a request.

        Raises UnsupportedVersionError when no version fits, and whatever ``encode`` raises, having
        queued nothing.
        """
        if self._versions is None:
            raise UnsupportedVersionError("the connection's handshake is not over")
        version = self._versions.pick(exchange.api, exchange.version_cap)
        self._enqueue(exchange, version, now)

    def _enqueue(self, exchange: Exchange, version: int, now: float) -> None:
        correlation_id = self._next_correlation_id
        self._next_correlation_id = (correlation_id + 1) & LAST_CORRELATION_ID
        frame = exchange.encode(version, correlation_id, self._client_id)
        entry = _Unanswered(exchange, version, correlation_id, now, frame)
        self._output.append(entry)
        self._unanswered.append(entry)
        self.bytes_in_flight += entry.size
        self._on_request(entry.size)

    @property
    def has_output(self) -> bool:
        """True when bytes wait for the socket."""
        return bool(self._output)

    def pending_output(self) -> Buffers:
        """The bytes that wait for the socket, in order."""
        if len(self._output) == 1:
            return self._output[0].left
        return [buffer for entry in self._output for buffer in entry.left]

    def offered(self) -> None:
        """All output may leave before ``wrote`` says so: the transport buffers bytes itself."""
        for entry in self._output:
            entry.may_be_read = True

    def wrote(self, nbytes: int, now: float) -> None:
        """The socket took ``nbytes``. Requests that expect no response end here."""
        finished: list[_Unanswered] = []
        while nbytes:
            entry = self._output[0]
            entry.since = now
            if nbytes < entry.left_bytes:
                entry.took(nbytes)
                break
            nbytes -= entry.left_bytes
            entry.left, entry.left_bytes, entry.may_be_read = (), 0, True
            finished.append(self._output.popleft())
        self.is_sending = False
        for entry in finished:
            if not entry.exchange.expects_response:
                self._unanswered.remove(entry)
                self.bytes_in_flight -= entry.size
                self._useful = True
                self._answer(entry, memoryview(b""), now)

    def received(self, chunk: bytes, now: float) -> None:
        """Bytes came.

        Ends the exchanges they answer; raises ProtocolError when they make no sense, and
        UnsupportedVersionError when the broker offers no version of a needed API.
        """
        for frame in self._frames.feed(chunk):
            if self._closed:  # the frame before this one has ended the connection
                return
            self._match(frame, now)

    def _match(self, frame: memoryview, now: float) -> None:
        if not self._unanswered:
            raise ProtocolError("the broker sent a response to no request")
        entry = self._unanswered[0]
        if entry.left_bytes:
            raise ProtocolError("the broker answered a request that was not fully sent")
        correlation_id, body = split_response_header(entry.exchange.api, entry.version, frame)
        if correlation_id != entry.correlation_id:
            raise ProtocolError(
                f"the broker answered request {correlation_id},"
                f" but {entry.correlation_id} is the oldest"
            )
        if len(body) > LONGEST_OTHER_ANSWER and entry.exchange.api not in LONG_ANSWERS:
            raise ProtocolError(
                f"{entry.exchange.api.name} v{entry.version} response: {len(body)} bytes,"
                f" {LONGEST_OTHER_ANSWER} are the most to be expected"
            )
        self.responses += 1
        throttle_ms = self._tell(entry, body, now)
        if throttle_ms > 0 and asks_for_silence(entry.exchange.api, entry.version):
            self._be_silent(min(throttle_ms, LONGEST_SILENCE_MS) / 1000, now)

    def _be_silent(self, seconds: float, now: float) -> None:
        self._throttled_until = max(self._throttled_until, now + seconds)
        for entry in self._unanswered:  # the broker does not read them before that (KIP-219)
            entry.since = max(entry.since, self._throttled_until)

    def _tell(self, entry: _Unanswered, body: memoryview, now: float) -> int:
        # Taken off first: the answer may lead to close(), which must not end the exchange a second
        # time. Put back when the answer could not be read, so that close() ends it.
        self._unanswered.popleft()
        self.bytes_in_flight -= entry.size
        established = self.established
        throttle_ms = self._answer(entry, body, now)
        self._useful = self._useful or established
        if not established:
            self._look_whether_known()
        return throttle_ms

    def _answer(self, entry: _Unanswered, body: memoryview, now: float) -> int:
        try:
            return entry.exchange.answered(entry.version, body, now)
        except BaseException as error:
            self._unanswered.appendleft(entry)
            self.bytes_in_flight += entry.size
            if entry.exchange.api not in SETUP and not isinstance(error, KprodError):
                self.mistake = error
            raise

    def waiting_since(self) -> float | None:
        """The time since which the broker has to answer or to read; None when it has not.

        Or since when a login's next message is worked out here: that takes as long at most.

        Not before the last bytes it took of its oldest request, nor before the end of a silence it
        asked for: that may be in the future.
        """
        if not self._unanswered:
            return None if self._login is None else self._login.begun
        entry = self._unanswered[0]
        return entry.since

    def close(self, error: KprodError, now: float) -> None:
        """The connection is gone: fail every unanswered request, oldest first.

        Raises what one of them raised, once all were told.
        """
        self._closed = True
        self.bytes_in_flight = 0
        self._output.clear()
        self._versions = None
        mistake: Exception | None = None
        while self._unanswered:
            entry = self._unanswered.popleft()
            entry.left = ()  # its views: the memory goes back to the pool
            try:
                in_doubt = self.is_sending and entry.left_bytes > 0
                entry.exchange.failed(error, now, sent=entry.may_be_read or in_doubt)
            except Exception as raised:
                mistake = raised
        if mistake is not None:
            raise mistake
