"""The embedded broker: a single node that speaks the Kafka protocol over a real log on disk."""

from __future__ import annotations

from kprod.broker.embedded_broker import EmbeddedBroker

__all__ = ["EmbeddedBroker"]
