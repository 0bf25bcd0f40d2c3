"""GetTelemetrySubscriptions (71): which metrics a client is to tell us of."""

from __future__ import annotations

from kprod.broker.call import Call
from kprod.broker.messages import Message
from kprod.broker.node import Node
from kprod.errors import BrokerError


def get_telemetry_subscriptions(call: Call, node: Node) -> Message:
    """The subscription; with an id for a client that has none."""
    own_id = call.body.client_instance_id
    try:
        instance_id, wanted = node.client_metrics.ask(own_id, node.clock)
    except BrokerError as error:
        return {"error_code": error.code}
    return {
        "client_instance_id": None if own_id else instance_id,
        "subscription_id": wanted.subscription_id,
        "accepted_compression_types": wanted.codecs,
        "push_interval": wanted.push_interval_ms,
        "telemetry_max_bytes": wanted.max_bytes,
        "delta_temporality": wanted.delta,
        "requested_metrics": wanted.metrics,
    }
