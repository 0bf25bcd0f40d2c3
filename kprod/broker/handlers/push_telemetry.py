"""PushTelemetry (72): a client tells of its metrics."""

from __future__ import annotations

from kio.schema.errors import ErrorCode

from kprod.broker.call import Call
from kprod.broker.client_metrics import ClientMetricsPush
from kprod.broker.messages import Message
from kprod.broker.node import Node
from kprod.errors import BrokerError


def push_telemetry(call: Call, node: Node) -> Message:
    """Taken, or the reason why not."""
    body = call.body
    if body.client_instance_id is None:
        return {"error_code": ErrorCode.invalid_request}
    push = ClientMetricsPush(
        body.client_instance_id,
        call.client_id,
        body.terminating,
        body.compression_type,
        bytes(body.metrics),
    )
    try:
        node.client_metrics.push(push, body.subscription_id, node.clock)
    except BrokerError as error:
        return {"error_code": error.code}
    return {}
