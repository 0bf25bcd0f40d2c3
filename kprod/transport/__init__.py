"""Connections to brokers, and waiting for them. Only this package uses sockets."""

from __future__ import annotations

from kprod.transport.base import Backend, Readiness, Transport
from kprod.transport.registry import register

__all__ = ["Backend", "Readiness", "Transport", "register"]
