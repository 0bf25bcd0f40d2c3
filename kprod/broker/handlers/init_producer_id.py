"""InitProducerId (22): an identity for an idempotent producer."""

from __future__ import annotations

from kio.schema.errors import ErrorCode

from kprod.broker.call import Call
from kprod.broker.messages import Message
from kprod.broker.node import Node


def init_producer_id(call: Call, node: Node) -> Message:
    """Always a new id with epoch 0, also for a producer that names its old one (as in Kafka)."""
    body = call.body
    has_id = getattr(body, "producer_id", -1) >= 0
    has_epoch = getattr(body, "producer_epoch", -1) >= 0
    if has_id != has_epoch:
        return _refuse(ErrorCode.invalid_request)
    if body.transactional_id is not None:
        # Not "try again": a client would, for ever. This one ends it, and says it is the id.
        return _refuse(ErrorCode.transactional_id_authorization_failed)
    try:
        producer_id = node.producer_ids.take()
    except OSError:
        return _refuse(ErrorCode.kafka_storage_error)
    return {"producer_id": producer_id, "producer_epoch": 0}


def _refuse(code: ErrorCode) -> Message:
    return {"error_code": code, "producer_id": -1, "producer_epoch": -1}
