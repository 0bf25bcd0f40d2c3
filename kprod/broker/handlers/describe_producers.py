"""DescribeProducers (61): who has written to partitions with a producer id."""

from __future__ import annotations

from kprod.broker.call import Call
from kprod.broker.messages import Message
from kprod.broker.node import Node
from kprod.errors import BrokerError


def describe_producers(call: Call, node: Node) -> Message:
    """The producers each partition remembers: last sequence and time, open transaction."""
    return {
        "topics": [
            {
                "name": topic.name,
                "partitions": [
                    _partition(topic.name, index, node)
                    for index in dict.fromkeys(topic.partition_indexes)
                ],
            }
            for topic in dict.fromkeys(call.body.topics)
        ]
    }


def _partition(topic: str, index: int, node: Node) -> Message:
    try:
        log = node.partition(node.topic(topic, None), index)
    except BrokerError as error:
        return {
            "partition_index": index,
            "error_code": error.code,
            "error_message": str(error),
        }
    return {
        "partition_index": index,
        "active_producers": [
            {
                "producer_id": producer_id,
                "producer_epoch": entry.epoch,
                "last_sequence": entry.batches[-1].last_sequence if entry.batches else -1,
                "last_timestamp": entry.last_timestamp,
                "coordinator_epoch": entry.coordinator_epoch,
                "current_txn_start_offset": entry.transaction_start,
            }
            for producer_id, entry in log.producers()
        ],
    }
