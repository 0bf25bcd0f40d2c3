"""The SASL login of a connection: SaslHandshake, then SaslAuthenticate until the login is over.

The first login comes before any other request (KIP-152). If the broker limits the lifetime of a
login, the login is repeated before its end, on the same connection (KIP-368). Requests in flight
are not affected. Later requests wait until the login ends, because the broker accepts no others
during a login.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import NamedTuple

from kprod.errors import (
    BrokerError,
    ConnectionLost,
    ErrorCode,
    ProtocolError,
    SaslAuthenticationError,
)
from kprod.security.steps import Steps
from kprod.sender.connection import ControlRequest, Exchange
from kprod.wire.sasl import (
    SaslAuthenticateReply,
    SaslHandshakeReply,
    decode_sasl_authenticate_response,
    decode_sasl_handshake_response,
    encode_sasl_authenticate_request,
    encode_sasl_handshake_request,
)
from kprod.wire.versions import ApiKey
from kprod_ext.peer_text import printable

FOREVER = float("inf")
MOST_ROUNDS = 100
LEAST_PAUSE = 1.0
"""Minimum seconds between two logins. Apache Kafka refuses an earlier one, by its own clock."""


class LoginSettings(NamedTuple):
    """How to log in.

    ``start`` takes the broker's host, and a function that makes the sender call ``Login.proceed``
    soon.

    ``part`` returns the part of a login's lifetime after which it is repeated, between 0.85 and
    0.95 as in Kafka. It is different each time, so that connections do not log in at the same time.
    """

    mechanism: str
    start: Callable[[str, Callable[[], None]], Steps]
    part: Callable[[], float]


class Login:
    """The login of one connection to ``host``. Used only by the owner of the loop.

    ``wake`` makes the sender call ``proceed`` soon. Any thread may call it.
    """

    def __init__(self, settings: LoginSettings, host: str, wake: Callable[[], None]) -> None:
        self._settings = settings
        self._host = host
        self._wake = wake
        self._send: Callable[[Exchange, float], None]
        self._steps: Steps | None = None  # while it goes on
        self._waits_for_steps = False
        self._rounds = 0
        self.established = False
        """Whether the first login has succeeded."""
        self._begun = 0.0
        self._taken_up = 0.0  # when the broker had begun the last login, at the latest
        self._last_reply: int = 0
        self.holds_until = FOREVER
        """From this time, no other request may begin. ``due`` may be later."""
        self.due = FOREVER

    @property
    def under_way(self) -> bool:
        """Whether a login must end before other requests may be sent."""
        return self._steps is not None or not self.established

    @property
    def begun(self) -> float | None:
        """Since when the next message is being prepared here; None if it is the broker's turn."""
        return self._begun if self._waits_for_steps else None

    def begin(self, send: Callable[[Exchange, float], None], now: float) -> None:
        """Log in, for the first time or again. ``send`` queues a request on the connection."""
        self._send = send
        self._steps = self._settings.start(self._host, self._wake)
        self._rounds = 0
        self.due = FOREVER
        encode = partial(encode_sasl_handshake_request, mechanism=self._settings.mechanism)
        decode = decode_sasl_handshake_response
        handshake = ControlRequest(ApiKey.SASL_HANDSHAKE, encode, decode, self._handshake_answered)
        self._send(handshake, now)

    def _handshake_answered(self, reply: SaslHandshakeReply, now: float) -> None:
        if reply.error_code == ErrorCode.UNSUPPORTED_SASL_MECHANISM:
            offered = printable(", ".join(reply.mechanisms)) or "none"
            wanted = f"sasl_mechanism={self._settings.mechanism!r}"
            raise SaslAuthenticationError(
                f"the broker does not offer {wanted}; it offers {offered}"
            )
        if reply.error_code == ErrorCode.ILLEGAL_SASL_STATE and self.established:
            raise ConnectionLost("the broker takes no other login on a connection that has one")
        if reply.error_code == ErrorCode.ILLEGAL_SASL_STATE:
            raise SaslAuthenticationError(
                "this port takes no logins; set security_protocol to what it expects"
            )
        if reply.error_code:
            raise SaslAuthenticationError(f"no login: {BrokerError(reply.error_code)}")
        self._taken_up = now
        self._step(None, now)

    def _step(self, challenge: bytes | None, now: float) -> None:
        steps = self._steps
        if steps is None:
            raise ProtocolError("the broker goes on with a login that has ended")
        self._rounds += 1
        if self._rounds > MOST_ROUNDS:
            raise SaslAuthenticationError(f"no end of the login after {MOST_ROUNDS} messages")
        self._waits_for_steps, self._begun = True, now
        steps.begin(challenge)
        self.proceed(now)

    def proceed(self, now: float) -> None:
        """Continue if the next message is ready. Raises KprodError if preparing it failed."""
        if self._steps is None or not self._waits_for_steps:
            return
        message = self._steps.take()
        if message is None:
            return
        self._waits_for_steps = False
        if message.data is None:
            self._end(now)
        else:
            encode = partial(encode_sasl_authenticate_request, auth_bytes=message.data)
            decode = decode_sasl_authenticate_response
            request = ControlRequest(ApiKey.SASL_AUTHENTICATE, encode, decode, self._answered)
            self._send(request, now)

    def _answered(self, reply: SaslAuthenticateReply, now: float) -> None:
        if reply.error_code:
            code = BrokerError(reply.error_code)
            refused = (
                reply.error_code == ErrorCode.SASL_AUTHENTICATION_FAILED and reply.error_message
            )
            said = reply.error_message or ""
            why = said if refused else f"{code}" + (said and f": {said}")
            raise SaslAuthenticationError(
                f"the broker refused the login by {self._settings.mechanism}: {why}"
            )
        self._last_reply = reply.lifetime_ms
        self._step(reply.auth_bytes, now)

    def _end(self, now: float) -> None:
        self._steps = None
        self.established = True
        self.holds_until = FOREVER
        if self._last_reply > 0:
            self.holds_until = now + self._last_reply / 1000 * self._settings.part()
            self.due = max(self.holds_until, self._taken_up + LEAST_PAUSE)
