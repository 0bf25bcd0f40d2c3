"""The embedded broker: nodes that speak the Kafka protocol over a real log on disk."""

from __future__ import annotations

import kprod.broker.needed  # noqa: F401 - must be imported first
from kprod.broker.client_metrics import (
    ClientMetrics,
    ClientMetricsPush,
    ClientMetricsSubscription,
)
from kprod.broker.embedded_broker import EmbeddedBroker
from kprod.broker.faults import Fault, FaultPlan
from kprod.broker.groups.group import GroupConfig
from kprod.broker.log.log_config import LogConfig
from kprod.broker.network.listener import (
    Authentication,
    Grant,
    Listener,
    Refused,
    make_listener,
    tls_context,
)
from kprod.broker.protocol.api_key import ApiKey
from kprod.broker.transactions.transaction import TransactionConfig

__all__ = [
    "ApiKey",
    "Authentication",
    "ClientMetrics",
    "ClientMetricsPush",
    "ClientMetricsSubscription",
    "EmbeddedBroker",
    "Fault",
    "FaultPlan",
    "Grant",
    "GroupConfig",
    "Listener",
    "LogConfig",
    "Refused",
    "TransactionConfig",
    "make_listener",
    "tls_context",
]
