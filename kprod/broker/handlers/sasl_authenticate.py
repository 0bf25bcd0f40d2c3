"""SaslAuthenticate (36): one round of a login."""

from __future__ import annotations

import time
from typing import Final

from kio.schema.errors import ErrorCode

from kprod.broker.authentication import Authentication, Exchange, Refused
from kprod.broker.call import Call
from kprod.broker.messages import Message
from kprod.broker.node import Node
from kprod.broker.session import ANONYMOUS

_FIRST_WITH_LIFETIME: Final = 1


def sasl_authenticate(call: Call, node: Node) -> Message:
    """The answer to the client's message; 58 ends the login, 34 says that none was begun.

    Whoever logs in again has to be the same user as before.
    """
    session = call.session
    exchange, authentication = session.authentication, session.listener.authentication
    if exchange is None or authentication is None:
        return _failed(ErrorCode.illegal_sasl_state, "SaslHandshake comes first")
    try:
        answer = exchange.step(call.body.auth_bytes)
        if exchange.done and session.principal not in (ANONYMOUS, exchange.principal):
            raise Refused("Cannot change principals during re-authentication")
    except Refused as refused:
        session.authentication = None
        return _failed(ErrorCode.sasl_authentication_failed, str(refused))
    values = {"error_code": ErrorCode.none, "error_message": None, "auth_bytes": answer}
    if not exchange.done:
        return values
    session.authentication = None
    session.authenticated, session.principal = True, exchange.principal
    lifetime = _lifetime(authentication, exchange)
    if lifetime is None or call.version < _FIRST_WITH_LIFETIME:
        return values
    session.expires = node.clock.monotonic() + lifetime
    return {**values, "session_lifetime": int(lifetime * 1000)}


def _lifetime(authentication: Authentication, exchange: Exchange) -> float | None:
    """Seconds until the client has to log in again, None for never."""
    limits = [] if authentication.session_lifetime is None else [authentication.session_lifetime]
    if exchange.expires is not None:
        limits.append(max(0.001, exchange.expires - time.time()))
    return min(limits, default=None)


def _failed(error: ErrorCode, text: str) -> Message:
    return {"error_code": error, "error_message": text, "auth_bytes": b""}
