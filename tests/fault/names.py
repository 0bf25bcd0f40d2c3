"""A producer that finds every broker at one port of loopback, or nowhere, whatever it is told."""

from __future__ import annotations

import socket
from typing import Any

from kprod import KafkaProducer
from kprod.transport.tcp import Address, TcpBackend

AT_ONCE: dict[str, Any] = dict.fromkeys(
    (
        "reconnect_backoff_ms",
        "reconnect_backoff_max_ms",
        "retry_backoff_ms",
        "retry_backoff_max_ms",
        "linger_ms",
    ),
    1,
)
"""Options of a producer that hardly pauses between attempts."""


class Names:
    """What names resolve to: a port of loopback, or nothing at all."""

    def __init__(self, port: int | None = None) -> None:
        self.port = port
        self.asked = 0

    def resolve(self, host: str, port: int) -> list[Address]:
        self.asked += 1
        if self.port is None:
            raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")
        return [Address(socket.AF_INET, ("127.0.0.1", self.port))]

    def producer(self, **options: object) -> KafkaProducer:
        """One that asks us for every address."""
        return KafkaProducer(
            bootstrap_servers="somewhere:9092",
            transport=lambda: TcpBackend(resolver=self.resolve),
            **{**AT_ONCE, **options},
        )
