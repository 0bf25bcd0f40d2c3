"""InitProducerId (22): an identity for an idempotent or transactional producer."""

from __future__ import annotations

from typing import Final

from kio.schema.errors import ErrorCode

from kprod.broker.call import Call
from kprod.broker.handlers.transaction_answers import fencing_code
from kprod.broker.messages import Message
from kprod.broker.node import Node
from kprod.broker.transactions.transaction_rules import ProducerIdentity
from kprod.errors import BrokerError

_FIRST_WITH_FENCED: Final = 4


def init_producer_id(call: Call, node: Node) -> Message:
    """Without a transactional id always a new id with epoch 0, whatever the producer names.

    With one the next epoch of its id, from the coordinator.
    """
    body = call.body
    has_id = getattr(body, "producer_id", -1) >= 0
    has_epoch = getattr(body, "producer_epoch", -1) >= 0
    if has_id != has_epoch:
        return _refuse(ErrorCode.invalid_request)
    if body.transactional_id is not None:
        return _initialize(call, node, has_id=has_id)
    try:
        producer_id = node.producer_ids.take()
    except OSError:
        return _refuse(ErrorCode.kafka_storage_error)
    return {"producer_id": producer_id, "producer_epoch": 0}


def _initialize(call: Call, node: Node, *, has_id: bool) -> Message:
    body = call.body
    present = ProducerIdentity(body.producer_id, body.producer_epoch) if has_id else None
    timeout_ms = round(body.transaction_timeout.total_seconds() * 1000)
    try:
        node.check_coordinates_transaction(body.transactional_id)
        found = node.transactions.initialize(body.transactional_id, timeout_ms, present)
    except BrokerError as error:
        return _refuse(fencing_code(error.code, call.version, _FIRST_WITH_FENCED))
    return {"producer_id": found.producer_id, "producer_epoch": found.producer_epoch}


def _refuse(code: int) -> Message:
    return {"error_code": code, "producer_id": -1, "producer_epoch": -1}
