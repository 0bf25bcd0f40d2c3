"""AddPartitionsToTxn (24): a producer says where it is going to write."""

from __future__ import annotations

from typing import Final

from kio.schema.errors import ErrorCode

from kprod.broker.call import Call
from kprod.broker.handlers.transaction_answers import fencing_code
from kprod.broker.messages import Message
from kprod.broker.node import Node
from kprod.broker.transactions.transaction_rules import ProducerIdentity
from kprod.errors import BrokerError
from kprod.types import TopicPartition

_FIRST_WITH_FENCED: Final = 2


def add_partitions_to_txn(call: Call, node: Node) -> Message:
    """All partitions or none: 55 for the others if one of them cannot be, 3 for that one."""
    wanted = [
        TopicPartition(topic.name, number)
        for topic in call.body.v3_and_below_topics
        for number in topic.partitions
    ]
    errors = _add(call, node, wanted)
    return {
        "results_by_topic_v3_and_below": [
            {
                "name": topic.name,
                "results_by_partition": [
                    {
                        "partition_index": number,
                        "partition_error_code": errors[TopicPartition(topic.name, number)],
                    }
                    for number in topic.partitions
                ],
            }
            for topic in call.body.v3_and_below_topics
        ]
    }


def _add(call: Call, node: Node, wanted: list[TopicPartition]) -> dict[TopicPartition, int]:
    body = call.body
    absent = [where for where in wanted if not node.has_partition(where)]
    if absent:
        errors: dict[TopicPartition, int] = dict.fromkeys(wanted, ErrorCode.operation_not_attempted)
        return {**errors, **dict.fromkeys(absent, ErrorCode.unknown_topic_or_partition)}
    who = ProducerIdentity(body.v3_and_below_producer_id, body.v3_and_below_producer_epoch)
    name = body.v3_and_below_transactional_id
    try:
        node.check_coordinates_transaction(name)
        node.transactions.add_partitions(name, who, wanted)
    except BrokerError as error:
        return dict.fromkeys(wanted, fencing_code(error.code, call.version, _FIRST_WITH_FENCED))
    return dict.fromkeys(wanted, ErrorCode.none)
