"""DescribeTransactions (65)."""

from __future__ import annotations

from itertools import groupby

from kio.schema.errors import ErrorCode

from kprod.broker.call import Call
from kprod.broker.messages import Message
from kprod.broker.node import Node
from kprod.errors import BrokerError


def describe_transactions(call: Call, node: Node) -> Message:
    """The state of each transactional id: 105 for one that nobody knows, 42 for an empty one."""
    return {"transaction_states": [_describe(name, node) for name in call.body.transactional_ids]}


def _describe(name: str, node: Node) -> Message:
    unknown = {"transactional_id": name, "producer_id": 0, "producer_epoch": 0}
    try:
        node.check_coordinates_transaction(name)
    except BrokerError as error:
        return {**unknown, "error_code": error.code}
    if not name:
        return {**unknown, "error_code": ErrorCode.invalid_request}
    found = node.transactions.find(name)
    if found is None:
        return {**unknown, "error_code": ErrorCode.transactional_id_not_found}
    topics = groupby(sorted(found.partitions), lambda where: where.topic)
    return {
        "error_code": ErrorCode.none,
        "transactional_id": name,
        "transaction_state": found.state.spelled,
        "transaction_timeout": found.timeout_ms,
        "transaction_start_time": found.started_ms,
        "producer_id": found.producer_id,
        "producer_epoch": found.producer_epoch,
        "topics": [
            {"topic": topic, "partitions": [where.partition for where in partitions]}
            for topic, partitions in topics
        ],
    }
