"""The producer's options in a run."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import fields
from typing import Any

from kprod.config import ProducerConfig
from tests.simulation.backend import SimBackend
from tests.simulation.model.cluster import BrokerAddress
from tests.simulation.setup import Setup

CONNECTION_SETUP_MS = 1000
"""Limit for connecting, ApiVersions included; it doubles after each timeout."""

SAME = {f.name for f in fields(ProducerConfig)} & {f.name for f in fields(Setup)}


def configured(
    setup: Setup, addresses: Iterable[BrokerAddress], backend: SimBackend, **more: Any
) -> ProducerConfig:
    """``more``: other options."""
    return ProducerConfig.from_options(
        {
            "bootstrap_servers": [f"{a.host}:{a.port}" for a in addresses],
            "client_id": "simulated",
            "transport": lambda: backend,
            "enable_idempotence": setup.idempotent,
            "compression_type": setup.compression,
            "max_request_size": setup.max_request_size,
            "batch_max_size": setup.growth * setup.batch_size,
            "max_in_flight_requests_per_connection": setup.max_in_flight,
            **{name: getattr(setup, name) for name in sorted(SAME)},
            "socket_connection_setup_timeout_ms": CONNECTION_SETUP_MS,
            **more,
        }
    )
