"""SaslHandshake (17): which mechanism the client logs in by."""

from __future__ import annotations

from kio.schema.errors import ErrorCode

from kprod.broker.call import Call
from kprod.broker.messages import Message
from kprod.broker.node import Node


def sasl_handshake(call: Call, node: Node) -> Message:
    """Begin a login, the first or another one (KIP-368): until it ends nothing else is answered."""
    authentication = call.session.listener.authentication
    if authentication is None:
        return {"error_code": ErrorCode.illegal_sasl_state, "mechanisms": ()}
    exchange = authentication.begin(call.body.mechanism)
    call.session.authentication = exchange
    call.session.authenticated = False
    error = ErrorCode.none if exchange else ErrorCode.unsupported_sasl_mechanism
    return {"error_code": error, "mechanisms": authentication.mechanisms}
