"""A producer whose every connection goes through a proxy, wherever brokers say they are."""

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


def through_proxy(port: int, **options: Any) -> KafkaProducer:
    """A producer with ``options`` whose connections all lead to ``port`` of loopback."""
    proxy = [Address(socket.AF_INET, ("127.0.0.1", port))]
    return KafkaProducer(
        bootstrap_servers="behind-the-proxy:9092",
        transport=lambda: TcpBackend(resolver=lambda host, port: proxy),
        **{**AT_ONCE, **options},
    )
