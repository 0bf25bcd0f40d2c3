"""The producer's options in the circumstances of a run."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from kprod.config import ProducerConfig
from tests.simulation.backend import SimBackend
from tests.simulation.model.cluster import BrokerAddress
from tests.simulation.setup import Setup

CONNECTION_SETUP_MS = 1000
"""How long connecting may take, until a broker has told its versions; twice as long after each
time that it took too long."""


def configured(
    setup: Setup, addresses: Iterable[BrokerAddress], backend: SimBackend, **more: Any
) -> ProducerConfig:
    """``more``: options beside those of the setup."""
    return ProducerConfig.from_options(
        {
            "bootstrap_servers": [f"{a.host}:{a.port}" for a in addresses],
            "client_id": "simulated",
            "transport": lambda: backend,
            "acks": setup.acks,
            "enable_idempotence": setup.idempotent,
            "compression_type": setup.compression,
            "linger_ms": setup.linger_ms,
            "batch_size": setup.batch_size,
            "batch_max_size": setup.growth * setup.batch_size,
            "buffer_memory": setup.buffer_memory,
            "max_request_size": setup.max_request_size,
            "max_in_flight_requests_per_connection": setup.max_in_flight,
            "retries": setup.retries,
            "request_timeout_ms": setup.request_timeout_ms,
            "delivery_timeout_ms": setup.delivery_timeout_ms,
            "retry_backoff_ms": setup.retry_backoff_ms,
            "retry_backoff_max_ms": setup.retry_backoff_max_ms,
            "reconnect_backoff_ms": setup.reconnect_backoff_ms,
            "reconnect_backoff_max_ms": setup.reconnect_backoff_max_ms,
            "metadata_max_age_ms": setup.metadata_max_age_ms,
            "metadata_max_idle_ms": setup.metadata_max_idle_ms,
            "connections_max_idle_ms": setup.connections_max_idle_ms,
            "socket_connection_setup_timeout_ms": CONNECTION_SETUP_MS,
            **more,
        }
    )
