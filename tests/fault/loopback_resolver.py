"""Producers that resolve every broker to a loopback port, or to nothing."""

from __future__ import annotations

import socket
from typing import Any

from kprod import KafkaProducer
from kprod.transport.tcp import Address, TcpBackend

NO_BACKOFF: dict[str, Any] = dict.fromkeys(
    (
        "reconnect_backoff_ms",
        "reconnect_backoff_max_ms",
        "retry_backoff_ms",
        "retry_backoff_max_ms",
        "linger_ms",
    ),
    1,
)
"""Options of a producer that retries almost without pauses."""


class LoopbackResolver:
    """Resolves every name to a port of loopback, or fails."""

    def __init__(self, port: int | None = None) -> None:
        self.port = port
        self.lookups = 0

    def resolve(self, host: str, port: int) -> list[Address]:
        self.lookups += 1
        if self.port is None:
            raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")
        return [Address(socket.AF_INET, ("127.0.0.1", self.port))]

    def producer(self, **options: object) -> KafkaProducer:
        """A producer that uses this resolver."""
        return KafkaProducer(
            bootstrap_servers="somewhere:9092",
            transport=lambda: TcpBackend(resolver=self.resolve),
            **{**NO_BACKOFF, **options},
        )
