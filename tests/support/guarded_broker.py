"""An embedded broker with every kind of listener, and the producer options for each."""

from __future__ import annotations

import base64
import json
import ssl
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kprod.broker import Authentication, EmbeddedBroker, Listener, make_listener, tls_context
from tests.support.certificates import Certificates

USER, PASSWORD = "alice", "canary-pa55word"
PROTECTIONS = ("plain", "tls", "mtls")
MECHANISMS = ("none", "PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER")


def unsigned_token(lifetime: float = 3600.0) -> str:
    """A token that the broker accepts by default."""
    claims = {"sub": USER, "exp": time.time() + lifetime}
    parts = [json.dumps(part).encode() for part in ({"alg": "none"}, claims)]
    return ".".join(base64.urlsafe_b64encode(part).decode().rstrip("=") for part in parts) + "."


@dataclass(eq=False)
class GuardedBroker:
    """``options(protection, mechanism)``: a producer's options for that listener."""

    certificates: Certificates
    broker: EmbeddedBroker
    contexts: list[ssl.SSLContext]

    def address(self, protection: str, mechanism: str) -> str:
        return self.broker.addresses[_name(protection, mechanism)]

    def options(self, protection: str, mechanism: str) -> dict[str, Any]:
        address = self.address(protection, mechanism)
        return {"bootstrap_servers": address, **self.secrets(protection, mechanism)}

    def secrets(self, protection: str, mechanism: str) -> dict[str, Any]:
        """The options without the address."""
        protocol = "PLAINTEXT" if protection == "plain" else "SSL"
        options: dict[str, Any] = {}
        if protection != "plain":
            options["ssl_cafile"] = self.certificates.ca
        if protection == "mtls":
            options["ssl_certfile"] = self.certificates.client
        if mechanism == "none":
            return {"security_protocol": protocol, **options}
        options |= {"security_protocol": f"SASL_{protocol}", "sasl_mechanism": mechanism}
        if mechanism == "OAUTHBEARER":
            return {**options, "sasl_oauth_token_provider": unsigned_token}
        return {**options, "sasl_plain_username": USER, "sasl_plain_password": PASSWORD}

    def renew(self) -> None:
        """Issue new certificates for client and server, used by new connections."""
        self.certificates.issue("client", "client")
        server = self.certificates.issue("server", "localhost", "127.0.0.1")
        for context in self.contexts:
            context.load_cert_chain(server)


def _name(protection: str, mechanism: str) -> str:
    return f"{protection}-{'open' if mechanism == 'none' else 'sasl'}"


@contextmanager
def guarded_broker(
    certificates: Certificates,
    topics: dict[str, int],
    *,
    lifetime: float | None = None,
    folder: Path | None = None,
    nodes: int = 1,
) -> Iterator[GuardedBroker]:
    """``nodes`` with TCP listeners; with ``folder`` one node with Unix domain sockets there."""
    login = Authentication({USER: PASSWORD}, MECHANISMS[1:], session_lifetime=lifetime)
    contexts = {
        "plain": None,
        "tls": tls_context(certificates.server),
        "mtls": tls_context(certificates.server, None, certificates.ca),
    }
    listeners: list[Listener] = []
    for protection, context in contexts.items():
        for mechanism in ("none", "PLAIN"):
            name = _name(protection, mechanism)
            listeners.append(
                make_listener(
                    name,
                    port=0 if folder is None else 9092 + len(listeners),
                    tls=context,
                    authentication=None if mechanism == "none" else login,
                    path=None if folder is None else str(folder / f"{9092 + len(listeners)}.sock"),
                )
            )
    with EmbeddedBroker(listeners=listeners, topics=topics, nodes=nodes) as broker:
        yield GuardedBroker(certificates, broker, [each for each in contexts.values() if each])
