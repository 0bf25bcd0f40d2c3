"""ApiVersions (18), SaslHandshake (17), SaslAuthenticate (36), and telemetry (71, 72)."""

from __future__ import annotations

import re
from typing import Final

from kio.schema.errors import ErrorCode

from kprod.broker.client_metrics import ClientMetricsPush
from kprod.broker.network.listener import ANONYMOUS, Authentication, Exchange, Refused
from kprod.broker.node import Call, Node
from kprod.broker.protocol.api_key import VERSIONS, ApiKey, VersionRange
from kprod.broker.protocol.messages import Message
from kprod.broker.transactions.transaction import HIGHEST_VERSION
from kprod.clock import wall

_SOFTWARE: Final = re.compile(r"[a-zA-Z0-9](?:[a-zA-Z0-9\-.]*[a-zA-Z0-9])?")
_FIRST_WITH_SOFTWARE: Final = 3
_FIRST_WITH_ZERO: Final = 4
_TELEMETRY: Final = {ApiKey.GET_TELEMETRY_SUBSCRIPTIONS, ApiKey.PUSH_TELEMETRY}
_TRANSACTIONS: Final = "transaction.version"


def api_versions(call: Call, node: Node) -> Message:
    """Return the versions that the broker supports, and its features.

    The error is 42 if the client's software has a malformed name or version (KIP-511).
    """
    if call.version >= _FIRST_WITH_SOFTWARE:
        software = (call.body.client_software_name, call.body.client_software_version)
        if not all(map(_SOFTWARE.fullmatch, software)):
            return {"error_code": ErrorCode.invalid_request}
    limited = node.options.faults.versions
    offered = VERSIONS if node.options.client_metrics.offered else VERSIONS.keys() - _TELEMETRY
    return {
        "api_keys": [
            _range(key, limited.get(key, VERSIONS[key])) for key in VERSIONS if key in offered
        ],
        **_features(call.version, node.transactions.version),
        "finalized_features_epoch": node.transactions.features_epoch,
    }


def _features(version: int, level: int) -> Message:
    """The cluster's only feature (KIP-584). At level 0 it is supported, but not finalized."""
    supported = {"name": _TRANSACTIONS, "min_version": 0, "max_version": HIGHEST_VERSION}
    finalized = {"name": _TRANSACTIONS, "min_version_level": level, "max_version_level": level}
    return {
        # Some clients cannot read a lowest version of 0: those that ask by version 3 (KAFKA-17492).
        "supported_features": [supported] if version >= _FIRST_WITH_ZERO else [],
        "finalized_features": [finalized] if level else [],
    }


def unknown_version() -> Message:
    """Return the answer to an ApiVersions request of an unknown version.

    It is encoded in version 0, and has the versions of ApiVersions that the client may use.
    """
    return {
        "error_code": ErrorCode.unsupported_version,
        "api_keys": [_range(ApiKey.API_VERSIONS, VERSIONS[ApiKey.API_VERSIONS])],
    }


def _range(key: ApiKey, found: VersionRange) -> Message:
    return {"api_key": key, "min_version": found.lowest, "max_version": found.highest}


def sasl_handshake(call: Call, node: Node) -> Message:
    """Begin the first or a later login (KIP-368).

    Until the login has succeeded, the client may send nothing but requests of the login and
    ApiVersions.
    """
    authentication = call.session.listener.authentication
    if authentication is None:
        return {"error_code": ErrorCode.illegal_sasl_state, "mechanisms": ()}
    exchange = authentication.begin(call.body.mechanism)
    call.session.authentication = exchange
    call.session.authenticated = False
    error = ErrorCode.none if exchange else ErrorCode.unsupported_sasl_mechanism
    return {"error_code": error, "mechanisms": authentication.mechanisms}


_FIRST_WITH_LIFETIME: Final = 1


def sasl_authenticate(call: Call, node: Node) -> Message:
    """Continue the login with the client's message.

    The error is 58 if the login has failed, 34 if no login was begun. A client that logs in again
    has to be the same user as before.
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
    session.expires = node.options.clock.monotonic() + lifetime
    return {**values, "session_lifetime": int(lifetime * 1000)}


def _lifetime(authentication: Authentication, exchange: Exchange) -> float | None:
    """Return the seconds until the client has to log in again; None for never."""
    limits = [] if authentication.session_lifetime is None else [authentication.session_lifetime]
    if exchange.expires is not None:
        limits.append(max(0.001, exchange.expires - wall()))
    return min(limits, default=None)


def _failed(error: ErrorCode, text: str) -> Message:
    return {"error_code": error, "error_message": text, "auth_bytes": b""}


def get_telemetry_subscriptions(call: Call, node: Node) -> Message:
    """Return the subscription. A client without an instance id also gets one."""
    own_id = call.body.client_instance_id
    instance_id, wanted = node.options.client_metrics.ask(own_id, node.options.clock)
    return {
        "client_instance_id": None if own_id else instance_id,
        "subscription_id": wanted.subscription_id,
        "accepted_compression_types": wanted.codecs,
        "push_interval": wanted.push_interval_ms,
        "telemetry_max_bytes": wanted.max_bytes,
        "delta_temporality": wanted.delta,
        "requested_metrics": wanted.metrics,
    }


def push_telemetry(call: Call, node: Node) -> Message:
    """Accept pushed metrics, or answer with an error."""
    body = call.body
    if body.client_instance_id is None:
        return {"error_code": ErrorCode.invalid_request}
    push = ClientMetricsPush(
        body.client_instance_id,
        call.client_id,
        body.terminating,
        body.compression_type,
        bytes(body.metrics),
    )
    node.options.client_metrics.push(push, body.subscription_id, node.options.clock)
    return {}
