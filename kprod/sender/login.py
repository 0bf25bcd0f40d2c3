"""The SASL login of one connection: SaslHandshake, then SaslAuthenticate until it is over.

The first login comes before any other request (KIP-152). Where a broker says for how long it holds,
it is repeated before that is over (KIP-368), on the same connection: requests in flight stay so,
later ones wait until it ends, for a broker takes nothing else in between.
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
from kprod.sender.exchange import ControlRequest, Exchange
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
"""Seconds between two logins: Apache Kafka takes none sooner, by its own clock."""


class LoginSettings(NamedTuple):
    """How logins are made: ``start`` gets a function that has ``Login.proceed`` called soon.

    ``part`` gives the part of its lifetime after which a login is repeated: about 0.9 (Kafka: 0.85
    to 0.95), different each time so that not all connections do it at once.
    """

    mechanism: str
    start: Callable[[Callable[[], None]], Steps]
    part: Callable[[], float]


class Login:
    """The login of one connection. Used by the sender's thread only."""

    def __init__(
        self,
        settings: LoginSettings,
        enqueue: Callable[[Exchange, float], None],
        wake: Callable[[], None],
    ) -> None:
        self._settings = settings
        self._enqueue = enqueue
        self._wake = wake
        self._steps: Steps | None = None  # while it goes on
        self._waits_for_steps = False
        self._rounds = 0
        self._first_over = False
        self._begun = 0.0
        self._taken_up = 0.0  # when the broker had begun the last login, at the latest
        self._last_reply: int = 0
        self.holds_until = FOREVER
        """The time from which on no other request may begin; ``due`` may be later."""
        self.due = FOREVER

    @property
    def established(self) -> bool:
        """Whether the first login has ended well."""
        return self._first_over

    @property
    def under_way(self) -> bool:
        """Whether nothing else may be sent."""
        return self._steps is not None or not self._first_over

    @property
    def begun(self) -> float | None:
        """The time since which an answer is being worked out; None while the broker must answer."""
        return self._begun if self._waits_for_steps else None

    def begin(self, now: float) -> None:
        """Log in, the first time or another one."""
        self._steps = self._settings.start(self._wake)
        self._rounds = 0
        self.due = FOREVER
        encode = partial(encode_sasl_handshake_request, mechanism=self._settings.mechanism)
        decode = decode_sasl_handshake_response
        handshake = ControlRequest(ApiKey.SASL_HANDSHAKE, encode, decode, self._handshake_answered)
        self._enqueue(handshake, now)

    def _handshake_answered(self, reply: SaslHandshakeReply, now: float) -> None:
        if reply.error_code == ErrorCode.UNSUPPORTED_SASL_MECHANISM:
            offered = printable(", ".join(reply.mechanisms)) or "none"
            wanted = f"sasl_mechanism={self._settings.mechanism!r}"
            raise SaslAuthenticationError(
                f"the broker does not offer {wanted}; it offers {offered}"
            )
        if reply.error_code == ErrorCode.ILLEGAL_SASL_STATE and self._first_over:
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
        """Go on if the next message has been worked out. Raises KprodError if that failed."""
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
            self._enqueue(request, now)

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
        self._first_over = True
        self.holds_until = FOREVER
        if self._last_reply > 0:
            self.holds_until = now + self._last_reply / 1000 * self._settings.part()
            self.due = max(self.holds_until, self._taken_up + LEAST_PAUSE)
